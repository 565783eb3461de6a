//! Queue pairs. The connection manager connects them, or `ibv_modify_qp` does by number.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rnic::{DeviceInfo, QpConfig, QpState, QueuePair};
use rustix::io::Errno;

use crate::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPT_RC, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
};
use crate::builder::Builder;
use crate::context::Context;
use crate::cq::Cq;
use crate::device;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object, zeroable};
use crate::lock;
use crate::pd::Pd;
use crate::process::Process;
use crate::session::Part;
use crate::srq::Srq;
use crate::users::Use;

mod by_number;

use by_number::{ByNumber, Peer};

zeroable!(ibv_qp_ex, ibv_qp_attr);

/// How long the destruction of a queue pair waits for the end of its connection in order. Programs destroy
/// it when their work has completed, which is before the peer has all of it: a reset would take that away.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

#[repr(C)]
pub(crate) struct Qp {
    pub(crate) abi: Shared<ibv_qp_ex>,
    qp: QueuePair,
    pub(crate) builder: Builder,
    init: ibv_qp_init_attr,
    /// Reads and Atomic Operations that the connection may have outstanding: its own, and the peer's.
    reads: Mutex<[u8; 2]>,
    /// What the program has set of it by `ibv_modify_qp`, to connect it without the connection manager.
    by_number: Mutex<ByNumber>,
    pd: Arc<Pd>,
    /// What it was made with, until it is destroyed.
    uses: Mutex<Vec<Use>>,
}

object!(Qp: ibv_qp => offset_of!(Qp, abi));

/// Those of a session, by the number by which a program may name one to the connection manager.
#[derive(Default)]
pub(crate) struct Qps(pub(crate) Mutex<HashMap<u32, Weak<Qp>>>);

impl Part for Qps {}

impl Qp {
    /// Makes one, and tells in `init.cap` what it has.
    pub(crate) fn create(pd: &Arc<Pd>, init: &mut ibv_qp_init_attr) -> Outcome<Arc<Self>> {
        if init.qp_type != IBV_QPT_RC {
            return Err(Fail::unsupported(format!(
                "a queue pair of type {}: iWARP has reliable connections only",
                init.qp_type
            )));
        }
        let send_cq = init.send_cq.object::<Cq>()?;
        let recv_cq = init.recv_cq.object::<Cq>()?;
        let srq = match init.srq.is_null() {
            true => None,
            false => Some(init.srq.object::<Srq>()?),
        };
        let cap = &mut init.cap;
        cap.max_send_wr = cap.max_send_wr.max(1);
        cap.max_recv_wr = cap.max_recv_wr.max(1);
        let max_sge = cap.max_send_sge.max(cap.max_recv_sge).max(1);
        (cap.max_send_sge, cap.max_recv_sge) = (max_sge, max_sge);
        let config = QpConfig::default()
            .sq_depth(cap.max_send_wr)
            .rq_depth(cap.max_recv_wr)
            .max_sge(max_sge)
            .max_inline(cap.max_inline_data)
            .signal_all(init.sq_sig_all != 0)
            .receive_wait(Process::receive_wait()?)
            // As on adapters that look at the state only when they take the work.
            .early_sends(true);
        let (send, recv) = (send_cq.rnic(), recv_cq.rnic());
        let (depth, inline) = (cap.max_send_wr.max(cap.max_recv_wr), cap.max_inline_data);
        let qp = match &srq {
            Some(srq) => pd
                .rnic()
                .create_qp(send, recv, config.srq(srq.rnic().clone())),
            None => pd.rnic().create_qp(send, recv, config),
        };
        let session = pd.context().session();
        let is_above = |info: &DeviceInfo| {
            depth > info.max_queue_depth || max_sge > info.max_sge || inline > info.max_inline
        };
        let qp = qp.map_err(|error| device::refused_size(session, error, is_above))?;
        let num = session.number_of(qp.num());
        let abi = Shared::zeroed(|ex: &mut ibv_qp_ex| {
            let abi = &mut ex.base;
            abi.context = pd.context().abi_ptr();
            abi.qp_context = init.qp_context;
            abi.pd = pd.abi_ptr();
            abi.send_cq = init.send_cq;
            abi.recv_cq = init.recv_cq;
            abi.srq = init.srq;
            abi.handle = qp.num().0;
            abi.qp_num = num;
            abi.state = IBV_QPS_RESET;
            abi.qp_type = init.qp_type;
        });
        let mut uses = vec![pd.users.add(), send_cq.users.add(), recv_cq.users.add()];
        uses.extend(srq.map(|srq| srq.users.add()));
        let made = Arc::new(Self {
            abi,
            qp,
            builder: Builder::default(),
            init: *init,
            reads: Mutex::default(),
            by_number: Mutex::default(),
            pd: pd.clone(),
            uses: Mutex::new(uses),
        });
        lock(&made.context().session().part::<Qps>().0).insert(num, Arc::downgrade(&made));
        Ok(made)
    }

    pub(crate) fn destroy(qp: Ptr<ibv_qp>) -> Outcome<()> {
        let taken = qp.take_back::<Self>()?;
        taken.linger();
        lock(&taken.context().session().part::<Qps>().0).remove(&taken.number());
        taken.leave_connection();
        // Another thread's call may still have its share of the queue pair.
        lock(&taken.uses).clear();
        Ok(())
    }

    /// From here on no event of its connection comes: the identifier is notified of the end.
    fn leave_connection(&self) {
        self.context().session().queue_pair_gone(self.qp.num());
    }

    /// Ends a connection in order, if it can be in time.
    fn linger(&self) {
        let ended = match self.qp.state() {
            Ok(QpState::Rts) => self.qp.disconnect().wait(LINGER),
            Ok(QpState::Closing) => self.qp.disconnected().wait(LINGER),
            Ok(_) | Err(_) => Ok(()),
        };
        if let Err(error) = ended {
            log::debug!(
                "queue pair {} is destroyed before its end: {error}",
                self.qp.num()
            );
        }
    }

    /// As the program knows it.
    fn number(&self) -> u32 {
        self.context().session().number_of(self.qp.num())
    }

    pub(crate) fn rnic(&self) -> &QueuePair {
        &self.qp
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    /// What `qp->state` says, where no call of the program's asks the RNIC.
    pub(crate) fn note_state(&self, state: c_int) {
        field!(self.abi, base.state).store(state);
    }

    /// What was negotiated: the Reads that this side may have outstanding, and the peer.
    pub(crate) fn note_reads(&self, ord: u16, ird: u16) {
        let u8_of = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX);
        *lock(&self.reads) = [u8_of(ord), u8_of(ird)];
    }

    /// The state in the verbs' words. RESET and INIT are one to an RNIC, and iWARP's drivers tell it as INIT.
    pub(crate) fn state(&self) -> Outcome<c_int> {
        let state = match self.qp.state()? {
            QpState::Idle | QpState::Connecting => lock(&self.by_number).state(IBV_QPS_INIT),
            QpState::Rts => lock(&self.by_number).state(IBV_QPS_RTS),
            QpState::Closing => IBV_QPS_SQD,
            QpState::Terminate => IBV_QPS_SQE,
            QpState::Error => IBV_QPS_ERR,
        };
        self.note_state(state);
        Ok(state)
    }

    pub(crate) fn query(&self) -> Outcome<(ibv_qp_attr, ibv_qp_init_attr)> {
        let state = self.state()?;
        let [max_rd_atomic, max_dest_rd_atomic] = *lock(&self.reads);
        let attr = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mtu: device::mtu(self.context().session().info()?.mtu),
            // Regions say what a peer may do.
            qp_access_flags: IBV_ACCESS_LOCAL_WRITE
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC,
            cap: self.init.cap,
            max_rd_atomic,
            max_dest_rd_atomic,
            port_num: 1,
            ..ibv_qp_attr::default()
        };
        Ok((lock(&self.by_number).told(attr), self.init))
    }

    /// The transitions that a program may ask for. Those to RTR and RTS connect a queue pair by number.
    pub(crate) fn modify(&self, attr: &ibv_qp_attr, mask: c_int) -> Outcome<()> {
        let is_joined = lock(&self.by_number).is_joined();
        self.change(attr, mask)?;
        lock(&self.by_number).note(attr, mask);
        if is_joined && mask & IBV_QP_ACCESS_FLAGS != 0 {
            self.set_peer_access(attr, mask)?;
        }
        Ok(())
    }

    /// Of a queue pair that is joined: the connection manager's have flags that no program chose.
    fn set_peer_access(&self, attr: &ibv_qp_attr, mask: c_int) -> Outcome<()> {
        if let Some(access) = lock(&self.by_number).peer_access(attr, mask) {
            self.qp.set_peer_access(access)?;
        }
        Ok(())
    }

    fn change(&self, attr: &ibv_qp_attr, mask: c_int) -> Outcome<()> {
        if mask & IBV_QP_STATE == 0 {
            return check_attributes(mask);
        }
        let (wanted, found) = (attr.qp_state, self.state()?);
        match (found, wanted) {
            (_, IBV_QPS_ERR) => self.qp.fail()?,
            (IBV_QPS_INIT, IBV_QPS_RESET | IBV_QPS_INIT) => {}
            (IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE, IBV_QPS_RESET) => {
                self.qp.fail()?;
                self.begin_anew()?;
            }
            (IBV_QPS_ERR, IBV_QPS_RESET) => self.begin_anew()?,
            (IBV_QPS_INIT, IBV_QPS_RTR) => self.join(attr, mask)?,
            (IBV_QPS_RTR, IBV_QPS_RTS) => by_number::check_rts(mask)?,
            (IBV_QPS_RTS, IBV_QPS_SQD) if lock(&self.by_number).is_joined() => {
                return Err(Fail::unsupported(
                    "the send queue of a queue pair that is connected by number can't be drained: wait for its completions",
                ));
            }
            (IBV_QPS_RTS, IBV_QPS_SQD) => self.qp.disconnect().detach()?,
            (IBV_QPS_RTS, IBV_QPS_RTS) => return check_attributes(mask & !IBV_QP_STATE),
            _ => {
                return Err(Fail::of(
                    Errno::INVAL,
                    format!("a queue pair in state {found} can't be put in state {wanted}"),
                ));
            }
        }
        self.note_state(wanted);
        Ok(())
    }

    /// Connects it to the queue pair that the attributes name, now or when that one is ready too.
    fn join(&self, attr: &ibv_qp_attr, mask: c_int) -> Outcome<()> {
        let peer = Peer::of(attr, mask, &self.context().session().info()?.addresses)?;
        self.set_peer_access(attr, mask)?;
        let joining = self.qp.join(peer.local, peer.remote, peer.mpa);
        Ok(joining.detach()?)
    }

    /// It is as when it was made.
    fn begin_anew(&self) -> Outcome<()> {
        self.qp.reset()?;
        *lock(&self.by_number) = ByNumber::default();
        self.leave_connection();
        Ok(())
    }
}

/// That attributes are of those that a program may set to no effect: access rights, path and timers of a
/// queue pair, which iWARP has in regions and in TCP.
fn check_attributes(mask: c_int) -> Outcome<()> {
    let known = IBV_QP_CUR_STATE
        | IBV_QP_EN_SQD_ASYNC_NOTIFY
        | IBV_QP_ACCESS_FLAGS
        | IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | IBV_QP_PATH_MTU
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_MIN_RNR_TIMER;
    match mask & !known {
        0 => Ok(()),
        unknown => Err(Fail::unsupported(format!(
            "attributes {unknown:#x} of a queue pair can't be changed"
        ))),
    }
}

impl ibv_qp_attr {
    /// What `ibv_modify_qp` needs besides `qp_state`, for a queue pair that the connection manager connects:
    /// the mask. Its connection moves it to RTR and RTS, and there is nothing left to do for those.
    pub(crate) fn complete(&mut self) -> Outcome<c_int> {
        self.port_num = 1;
        match self.qp_state {
            IBV_QPS_INIT => {
                self.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
                Ok(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT)
            }
            IBV_QPS_RTR | IBV_QPS_RTS => Ok(IBV_QP_PORT),
            other => Err(Fail::of(
                Errno::INVAL,
                format!("no connection puts a queue pair in state {other}"),
            )),
        }
    }
}

/// What a queue pair that is to be made by the connection manager has, if nothing else is said.
impl Default for ibv_qp_init_attr {
    fn default() -> Self {
        Self {
            qp_context: Ptr::NULL,
            send_cq: Ptr::NULL,
            recv_cq: Ptr::NULL,
            srq: Ptr::NULL,
            cap: ibv_qp_cap::default(),
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        }
    }
}
