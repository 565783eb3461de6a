//! The rules of the PRM, one test each.

mod administrators;
mod connections;
mod inspect;
mod isolation;
mod lifetimes;
mod limits;
mod peers;
mod reconfigure;
mod shared;
mod users;

use rnic_ipc::control::{
    Access, ListenSpec, MemoryKind, QpAttributes, Refusal, RefusalCode, RegionSpec, Transport,
};
use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_proto::Stag;

use super::Prm;
use crate::{Credentials, Limits};

/// To listen at a port of any local address.
fn listen_spec(port: u16, backlog: u32) -> ListenSpec {
    ListenSpec {
        local: ([198, 18, 0, 1], port).into(),
        backlog,
        transport: Transport::Tcp,
    }
}

const CREDENTIALS: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
    pid: 4242,
    superuser: false,
};

fn client(prm: &mut Prm) -> ClientId {
    *prm.add_client(CREDENTIALS).unwrap().client()
}

fn region(prm: &mut Prm, client: ClientId, pd: PdId, length: u64) -> Result<Stag, Refusal> {
    let grant = prm.register_region(
        client,
        &RegionSpec::new(pd, Access::default(), 0x1000, length),
    )?;
    let stag = *grant.stag();
    prm.region_registered(grant);
    Ok(stag)
}

fn cq(prm: &mut Prm, client: ClientId) -> Result<CqId, Refusal> {
    let grant = prm.create_cq(client, 16, 1)?;
    let cq = *grant.cq();
    prm.cq_created(grant);
    Ok(cq)
}

fn attributes(pd: PdId, send_cq: CqId, recv_cq: CqId) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq,
        recv_cq,
        sq_depth: 16,
        rq_depth: 16,
        srq: None,
        max_sge: 2,
        max_inline: 0,
        signal_all: false,
        receive_wait: None,
    }
}

fn qp(prm: &mut Prm, client: ClientId, attributes: QpAttributes) -> Result<QpNum, Refusal> {
    let grant = prm.create_qp(client, attributes)?;
    let qp = *grant.qp();
    prm.qp_created(grant);
    Ok(qp)
}

fn srq(prm: &mut Prm, client: ClientId, pd: PdId) -> Result<SrqId, Refusal> {
    let grant = prm.create_srq(client, pd, 16, 2)?;
    let srq = *grant.srq();
    prm.srq_created(grant);
    Ok(srq)
}

fn listener(prm: &mut Prm, client: ClientId) -> Result<ListenerId, Refusal> {
    let grant = prm.listen(client, &listen_spec(7471, 8))?;
    let listener = *grant.listener();
    prm.listening(grant, "198.18.0.1:7471".parse().unwrap());
    Ok(listener)
}

/// A client with one of everything.
struct Household {
    client: ClientId,
    pd: PdId,
    stag: Stag,
    cq: CqId,
    qp: QpNum,
    listener: ListenerId,
}

fn household(prm: &mut Prm) -> Household {
    let client = client(prm);
    let pd = prm.alloc_pd(client).unwrap();
    let cq = cq(prm, client).unwrap();
    Household {
        client,
        pd,
        stag: region(prm, client, pd, 4096).unwrap(),
        cq,
        qp: qp(prm, client, attributes(pd, cq, cq)).unwrap(),
        listener: listener(prm, client).unwrap(),
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>) -> RefusalCode {
    result.unwrap_err().code
}

fn prm() -> Prm {
    Prm::new(Limits::default())
}
