//! Finding the plugin file.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

const VARIABLE: &str = "TANDEM_PJRT_PLUGIN";
const PINNED: &str = ".tools/pjrt/pjrt_c_api_cpu_plugin.so";

/// The plugin to load: `TANDEM_PJRT_PLUGIN` where it is set, else the pinned CPU plugin in `.tools/pjrt/` of a folder above the
/// executable or above the current directory.
pub fn plugin_path() -> Result<PathBuf> {
    if let Some(chosen) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let chosen = PathBuf::from(chosen);
        return match chosen.is_file() {
            true => Ok(chosen),
            false => Err(Error::NoPlugin(format!("{VARIABLE} names no file: {}", chosen.display()))),
        };
    }
    let starts = [env::current_exe().ok(), env::current_dir().ok()];
    starts.iter().flatten().find_map(|start| above(start)).ok_or_else(|| {
        Error::NoPlugin(format!("{PINNED} is in no folder above the executable or the current directory"))
    })
}

fn above(start: &Path) -> Option<PathBuf> {
    start.ancestors().map(|folder| folder.join(PINNED)).find(|path| path.is_file())
}
