//! Mapping the program's memory for the peer (riomap), and giving that up.

use std::ffi::{c_int, c_void};

use libc::{PROT_WRITE, off_t};
use rustix::io::Errno;

use super::iomap::mapped;
use super::socket::{Phase, State};
use crate::abi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE};
use crate::ffi::{Fail, Outcome, Ptr};
use crate::pd::{Mr, Registration};
use crate::shared::shared;

impl State {
    /// Lets the peer write to memory, under an offset, or under its address when that is -1. The offset.
    pub(crate) fn map(
        &mut self,
        start: Ptr<c_void>,
        length: usize,
        protection: c_int,
        offset: off_t,
    ) -> Outcome<Option<isize>> {
        if protection != PROT_WRITE {
            return Err(Fail::unsupported("riomap maps memory for writing only"));
        }
        let Some(stream) = self.stream()? else {
            return Ok(None);
        };
        let addr = start.addr() as u64;
        let named = match offset {
            -1 => addr,
            offset => offset as u64,
        };
        let (_, pd) = shared(stream.session())?;
        let wanted = Registration {
            addr: start,
            length,
            iova: addr,
            access: IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        };
        let region = Mr::register(&pd, wanted)?;
        let mapped = mapped(addr, length, region.rkey(), named)?;
        let entries = stream.iomap_entries();
        stream.iomap.add(entries, mapped, region)?;
        stream.progress();
        Ok(Some(named as isize))
    }

    pub(crate) fn unmap(&mut self, start: Ptr<c_void>, length: usize) -> Outcome<()> {
        let Phase::Open(stream) = &mut self.phase else {
            return Err(Errno::INVAL.into());
        };
        let length = u32::try_from(length).map_err(|_| Errno::INVAL)?;
        stream.iomap.remove(start.addr() as u64, length)
    }
}
