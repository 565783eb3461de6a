//! What connection manager ids of a device have in common.

use std::sync::{Arc, Mutex, OnceLock};

use rustix::io::Errno;

use crate::context::Context;
use crate::ffi::{Fail, Outcome};
use crate::lock;
use crate::ops;
use crate::pd::Pd;
use crate::session::{Part, Session};
use crate::users::Use;

/// The session uses these objects as long as it lives, so that no program that closes what it did not open takes
/// them from the others. The context holds its session in turn, so that neither is ever freed, also when the device
/// is gone. Programs have pointers to both (`id->verbs`, `id->pd`, `rdma_get_devices`) without a share, and may
/// follow them as long as they live. There is one of each for each time that a program comes back to a device that
/// was gone.
#[derive(Default)]
struct Common {
    objects: OnceLock<(Arc<Context>, Arc<Pd>)>,
    uses: Mutex<Vec<Use>>,
}

impl Part for Common {}

/// The context of connection manager ids, and its protection domain.
pub(crate) fn shared(session: &Arc<Session>) -> Outcome<(Arc<Context>, Arc<Pd>)> {
    let common = session.part::<Common>();
    if common.objects.get().is_none() {
        let context = ops::open(session)?;
        let pd = Pd::alloc(&context)?;
        lock(&common.uses).extend([context.users.add(), pd.users.add()]);
        // Another thread's may be there meanwhile; then this one is not used.
        let _ = common.objects.set((context, pd));
    }
    let objects = common.objects.get().cloned();
    objects.ok_or_else(|| Fail::of(Errno::IO, "a session without a context"))
}
