//! Memory windows.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use rnic::{Access, MemoryWindow, QueuePair, WindowType, WorkRequest};
use rustix::io::Errno;

use crate::abi::{
    BindWords, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_MW_TYPE_1, IBV_MW_TYPE_2, ibv_mw, ibv_mw_bind, ibv_mw_bind_info,
    ibv_pd,
};
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object};
use crate::pd::{Mr, Pd, Registered, peer_rights};
use crate::send_flags::with_flags;
use crate::users::Use;

#[repr(C)]
pub(crate) struct Mw {
    abi: Shared<ibv_mw>,
    window: MemoryWindow,
    _use: Use,
}

object!(Mw: ibv_mw => offset_of!(Mw, abi));

impl Mw {
    pub(crate) fn alloc(pd: Ptr<ibv_pd>, mw_type: c_int) -> Outcome<Ptr<ibv_mw>> {
        let kind = match mw_type {
            IBV_MW_TYPE_1 => WindowType::Type1,
            IBV_MW_TYPE_2 => WindowType::Type2B,
            other => {
                return Err(Fail::of(
                    Errno::INVAL,
                    format!("a memory window of type {other}"),
                ));
            }
        };
        let pd = pd.share::<Pd>()?;
        let window = pd.rnic().alloc_window(kind)?;
        let abi = ibv_mw {
            context: pd.context().abi_ptr(),
            pd: pd.abi_ptr(),
            rkey: window.stag(),
            handle: 0,
            mw_type,
        };
        let made = Arc::new(Self {
            abi: Shared::new(abi),
            window,
            _use: pd.users.add(),
        });
        Ok(made.hand_out())
    }

    pub(crate) fn dealloc(mw: Ptr<ibv_mw>) -> Outcome<()> {
        drop(mw.take_back::<Self>()?);
        Ok(())
    }

    /// `ibv_bind_mw`: binds one of type 1, under an rkey that the program finds in the window.
    pub(crate) fn bind(&self, qp: &QueuePair, bind: &ibv_mw_bind) -> Outcome<()> {
        self.check_type(WindowType::Type1, "IBV_WR_BIND_MW binds those of type 2")?;
        let (info, wr_id) = (&bind.bind_info, bind.wr_id);
        let (work, rkey) = match info.length {
            0 => (self.window.unbind(wr_id), field!(self.abi, rkey).get()),
            _ => {
                let mr = info.mr.object::<Mr>()?.registered();
                let range = part_of(&mr, info)?;
                let rights = rights(info)?;
                let (work, remote) = self.window.bind(wr_id, &mr.region, range, rights)?;
                (work, remote.stag)
            }
        };
        qp.post_send(with_flags(work, bind.send_flags)?)?;
        field!(self.abi, rkey).set(rkey);
        Ok(())
    }

    /// `IBV_WR_BIND_MW`: the work that binds one of type 2, under the rkey that the program names.
    pub(crate) fn bind_work(wr_id: u64, bind: &BindWords) -> Outcome<WorkRequest<'static>> {
        let mw = bind.mw.object::<Self>()?;
        mw.check_type(WindowType::Type2B, "ibv_bind_mw binds those of type 1")?;
        let [name @ .., _] = mw.window.stag().to_be_bytes();
        let [named @ .., key] = bind.rkey.to_be_bytes();
        if name != named {
            return Err(Fail::of(
                Errno::INVAL,
                format!(
                    "a memory window bound under rkey {:#x}: only the last 8 bits may differ from {:#x}",
                    bind.rkey,
                    mw.window.stag()
                ),
            ));
        }
        let info = &bind.bind_info;
        let mr = info.mr.object::<Mr>()?.registered();
        let range = part_of(&mr, info)?;
        let window = &mw.window;
        let (work, _) = window.bind_with_key(wr_id, &mr.region, range, rights(info)?, key)?;
        Ok(work)
    }

    fn check_type(&self, wanted: WindowType, other: &str) -> Outcome<()> {
        match self.window.window_type() == wanted {
            true => Ok(()),
            false => Err(Fail::of(
                Errno::INVAL,
                format!("a memory window of the other type: {other}"),
            )),
        }
    }
}

/// The part of a region that a window is to be bound to.
fn part_of(mr: &Registered, info: &ibv_mw_bind_info) -> Outcome<Range<usize>> {
    if !mr.may_bind() {
        return Err(Fail::of(
            Errno::INVAL,
            "a memory window of a region without IBV_ACCESS_MW_BIND",
        ));
    }
    let start = info.addr.checked_sub(mr.region.addr());
    let range = start.and_then(|start| {
        let end = usize::try_from(start.checked_add(info.length)?).ok()?;
        Some(usize::try_from(start).ok()?..end)
    });
    range.ok_or_else(|| {
        let why = format!("a memory window at {:#x}, outside the region", info.addr);
        Fail::of(Errno::INVAL, why)
    })
}

/// What it lets peers do.
fn rights(info: &ibv_mw_bind_info) -> Outcome<Access> {
    let flags = info.mw_access_flags;
    let known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC;
    if flags & !known != 0 {
        return Err(Fail::unsupported(format!(
            "a memory window with access flags {flags:#x}: zero-based ones are not there"
        )));
    }
    Ok(peer_rights(flags))
}
