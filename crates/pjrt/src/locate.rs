//! Finding the plugin file.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

const PLUGIN: (&str, &str) = ("TANDEM_PJRT_PLUGIN", ".tools/pjrt/pjrt_c_api_cpu_plugin.so");
const LIBTPU: (&str, &str) = ("TANDEM_LIBTPU", ".tools/libtpu/libtpu.so");

/// The plugin to load: `TANDEM_PJRT_PLUGIN` where it is set, else the pinned CPU plugin in `.tools/pjrt/` of a folder above the
/// executable or above the current directory.
pub fn plugin_path() -> Result<PathBuf> {
    find(PLUGIN)
}

/// The TPU compiler to load: `TANDEM_LIBTPU` where it is set, else the pinned one in `.tools/libtpu/`, looked for as
/// [`plugin_path`] does. It compiles for a [`Topology`](crate::Topology) on any machine.
pub fn libtpu_path() -> Result<PathBuf> {
    find(LIBTPU)
}

fn find((variable, pinned): (&str, &str)) -> Result<PathBuf> {
    if let Some(chosen) = env::var_os(variable).filter(|value| !value.is_empty()) {
        let chosen = PathBuf::from(chosen);
        return match chosen.is_file() {
            true => Ok(chosen),
            false => Err(Error::NoPlugin(format!("{variable} names no file: {}", chosen.display()))),
        };
    }
    let starts = [env::current_exe().ok(), env::current_dir().ok()];
    starts.iter().flatten().find_map(|start| above(start, pinned)).ok_or_else(|| {
        Error::NoPlugin(format!("{pinned} is in no folder above the executable or the current directory"))
    })
}

fn above(start: &Path, pinned: &str) -> Option<PathBuf> {
    start.ancestors().map(|folder| folder.join(pinned)).find(|path| path.is_file())
}
