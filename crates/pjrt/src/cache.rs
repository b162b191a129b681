//! Compiled programs on disk, so that a worker that starts again loads in tens of milliseconds what took seconds to compile.
//!
//! A plugin loads an executable of another plugin version, or of another CPU, without complaint and then crashes or computes
//! nonsense. So the [key](key::Key) covers everything the machine code depends on, the file repeats its key, and a digest
//! ends it. Any doubt about a file means compiling again and replacing it.
//!
//! File: `TNDMEXE1`, key (32 bytes), length of the executable (8 bytes, little endian), the executable, sha256 of all before.
//! Processes may share the folder: a file appears whole, by rename. Who compiles a program holds a lock on its name meanwhile,
//! so that workers that start together compile it once; where the file system has no locks, each compiles its own.

mod key;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::executable::Executable;
use crate::options::CompileOptions;
use crate::{Error, Result};
use key::Key;

const MAGIC: &[u8; 8] = b"TNDMEXE1";
const HEADER: usize = MAGIC.len() + 32 + 8;
const TRAILER: usize = 32;

/// A folder of compiled programs.
#[derive(Clone, Debug)]
pub struct ExecutableCache {
    folder: PathBuf,
}

/// Where an executable came from.
#[derive(Clone, Debug)]
pub enum Hit {
    /// Loaded from the folder.
    Disk,
    /// Compiled.
    Compiled {
        /// Why it was not loaded.
        why: Miss,
        /// Why the next start will compile again, where storing failed. The executable is good all the same.
        not_stored: Option<Error>,
    },
}

/// Why a program was not loaded from the folder.
#[derive(Clone, Debug)]
pub enum Miss {
    /// There is no file for it.
    Absent,
    /// The file is cut, changed, of another format, or of another key.
    Damaged(&'static str),
    /// The file could not be read, or the plugin did not take it.
    Refused(Error),
}

impl Hit {
    /// Whether it was loaded from the folder.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Disk)
    }
}

impl ExecutableCache {
    /// A cache in `folder`, which is made when the first program is stored.
    ///
    /// Loading runs the machine code in the files: only the user the workers run as may be able to write there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The file a program has or will have.
    pub fn path(
        &self,
        client: &Client,
        program: impl AsRef<[u8]>,
        options: &CompileOptions,
    ) -> Result<PathBuf> {
        Ok(self.file(&Key::of(client, program.as_ref(), &options.encode(client)?)?))
    }

    /// Loads the program, or compiles and stores it.
    pub fn get_or_compile(
        &self,
        client: &Client,
        program: impl AsRef<[u8]>,
        options: &CompileOptions,
    ) -> Result<(Executable, Hit)> {
        let program = program.as_ref();
        let key = Key::of(client, program, &options.encode(client)?)?;
        let path = self.file(&key);
        let load = || client.load_executable(&read(&path, &key)?).map_err(Miss::Refused);
        if let Ok(executable) = load() {
            return Ok((executable, Hit::Disk));
        }
        let turn = self.turn(&key);
        // Whoever had the lock before may have stored it.
        let why = match load() {
            Ok(executable) => return Ok((executable, Hit::Disk)),
            Err(why) => why,
        };
        let executable = client.compile(program, options)?;
        let not_stored =
            executable.serialize().and_then(|serialized| self.write(&path, &key, &serialized)).err();
        drop(turn);
        Ok((executable, Hit::Compiled { why, not_stored }))
    }

    /// Waits until nobody else compiles this program; `None` where that can't be known.
    fn turn(&self, key: &Key) -> Option<Turn> {
        fs::create_dir_all(&self.folder).ok()?;
        let path = self.folder.join(format!("{key}.lock"));
        let file = File::create(&path).ok()?;
        file.lock().ok()?;
        Some(Turn { path, _file: file })
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{key}.pjrt"))
    }

    /// Writes beside the target and renames, so that no reader ever meets half a file.
    fn write(&self, path: &Path, key: &Key, serialized: &[u8]) -> Result<()> {
        let fail = |error: std::io::Error| Error::io(path, &error);
        let header = [MAGIC.as_slice(), key.bytes(), &(serialized.len() as u64).to_le_bytes()].concat();
        let digest = Sha256::new().chain_update(&header).chain_update(serialized).finalize();
        fs::create_dir_all(&self.folder).map_err(fail)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(fail)?;
        for part in [&header[..], serialized, &digest[..]] {
            file.write_all(part).map_err(fail)?;
        }
        // Without this a crash of the machine could leave the name with empty blocks; the digest would catch it, at the price
        // of compiling again.
        file.as_file().sync_data().map_err(fail)?;
        file.persist(path).map_err(|error| fail(error.error))?;
        Ok(())
    }
}

/// The lock on a program's name. A process that dies gives it back.
#[derive(Debug)]
struct Turn {
    path: PathBuf,
    _file: File,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Who waits has the same file open and looks for the program next; who comes later finds it at once.
        let _left_behind = fs::remove_file(&self.path);
    }
}

/// The executable in the file, once everything about the file is right.
fn read(path: &Path, key: &Key) -> std::result::Result<Vec<u8>, Miss> {
    let mut bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Miss::Absent),
        Err(error) => return Err(Miss::Refused(Error::io(path, &error))),
    };
    let body_end =
        bytes.len().checked_sub(TRAILER).filter(|end| *end >= HEADER).ok_or(Miss::Damaged("too short"))?;
    let (body, digest) = bytes.split_at(body_end);
    if Sha256::digest(body)[..] != *digest {
        return Err(Miss::Damaged("the digest does not match"));
    }
    let (magic, rest) = body.split_at(MAGIC.len());
    let (own_key, rest) = rest.split_at(key.bytes().len());
    let (length, serialized) = rest.split_at(8);
    if magic != MAGIC {
        return Err(Miss::Damaged("another format"));
    }
    if own_key != key.bytes() {
        return Err(Miss::Damaged("the key of another program or machine"));
    }
    if *length != (serialized.len() as u64).to_le_bytes() {
        return Err(Miss::Damaged("the length does not match"));
    }
    bytes.truncate(body_end);
    bytes.drain(..HEADER);
    Ok(bytes)
}
