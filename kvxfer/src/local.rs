use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// Bytes that only the two ends of a link know, in the memory of one of them: a process that has them at the right place is the sender.
pub(crate) const MARK: usize = 16;

/// Where a sender's mark lies, as its greeting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) process: u32,
    pub(crate) mark: u64,
}

/// A sender's word that the receiver may read payloads from its memory; the mark lies there as long as this lives.
#[derive(Debug)]
pub(crate) struct Offer {
    mark: Box<[u8; MARK]>,
}

impl Offer {
    pub(crate) fn new(mark: [u8; MARK]) -> Offer {
        Offer { mark: Box::new(mark) }
    }

    pub(crate) fn lent(&self) -> Lent {
        Lent { process: std::process::id(), mark: address(self.mark.as_slice()) }
    }
}

/// Where bytes lie in this process.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr() as u64
}

/// Another process's memory. Its owner may change it at any time: what is read is a copy, to be verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    process: Pid,
}

impl Borrowed {
    /// The memory that is lent, if it can be read from here and is the one that is meant: on another host, or behind another
    /// container's process numbers, it is not.
    pub(crate) fn find(lent: &Lent, mark: &[u8; MARK]) -> Option<Borrowed> {
        let borrowed = Borrowed { process: Pid::from_raw(i32::try_from(lent.process).ok()?) };
        let mut found = [0; MARK];
        (borrowed.read(lent.mark, &mut found) && found == *mark).then_some(borrowed)
    }

    /// As many bytes as `into` has; false if they are not there.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let length = into.len();
        let Ok(base) = usize::try_from(at) else { return false };
        let from = [RemoteIoVec { base, len: length }];
        process_vm_readv(self.process, &mut [IoSliceMut::new(into)], &from) == Ok(length)
    }
}
