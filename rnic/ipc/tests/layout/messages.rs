//! A sample of every variant of every message, in postcard's encoding.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_ipc::capture::{Direction, Filter, RecordHeader};
use rnic_ipc::control::{
    Access, ClientLimits, ConnectSpec, DeviceInfo, DeviceName, DisconnectReason, Event, JoinEnd,
    JoinNumbers, JoinSpec, ListenSpec, MarkerUse, MemoryKind, MpaOptions, PeerDepths, QpAttributes,
    QpState, ReceiveWait, Refusal, RefusalCode, RegionSpec, Reply, Request, Response, RtrModes,
    StagKind,
};
use rnic_ipc::id::{ClientId, ConnRequestId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::inspect::{DaemonOrder, Kind, Order, Page};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::inspect;

pub fn lines() -> Vec<String> {
    let refusal = Refusal {
        code: RefusalCode::Busy,
        message: "no".into(),
    };
    [
        every("Request", &requests()),
        every("Response", &responses()),
        every("Reply", &[Reply::Ok(Response::Done), Reply::Err(refusal)]),
        every("RefusalCode", &refusal_codes()),
        every("Event", &events()),
        every("DisconnectReason", &reasons()),
        every("QpState", &states()),
        every(
            "MarkerUse",
            &[MarkerUse::Off, MarkerUse::Prefer, MarkerUse::Require],
        ),
        every("Kind", &inspect::kinds()),
        every("Object", &inspect::objects()),
        every("Order", &inspect::orders()),
        every("DaemonOrder", &inspect::daemon_orders()),
        every("Stage", &inspect::stages()),
        every("Scope", &inspect::scopes()),
        every("LogLevel", &inspect::levels()),
        every("StagKind", &kinds()),
        every("MemoryKind", &MemoryKind::ALL),
        every("Direction", &[Direction::In, Direction::Out]),
        vec![record()],
        every("DeviceName", &device_names()),
    ]
    .concat()
}

/// What comes before each frame on a capture's stream.
fn record() -> String {
    let header = RecordHeader {
        unix_ns: 1,
        lost: 2,
        original: 3,
        kept: 4,
        direction: Direction::Out,
    };
    format!("RecordHeader: {:02x?}", header.to_bytes())
}

/// A line for each variant. That none is missing is seen by the number after the greatest, which must not
/// decode: of a variant that is there everything can be 0.
fn every<M: Serialize + DeserializeOwned + Debug>(of: &str, samples: &[M]) -> Vec<String> {
    let beyond = [&[samples.len() as u8][..], &[0; 256]].concat();
    if let Ok((other, _)) = postcard::take_from_bytes::<M>(&beyond) {
        panic!("{of} has a variant without a sample in tests/layout/messages.rs, like {other:?}");
    }
    let line = |(number, sample): (usize, &M)| {
        let bytes = postcard::to_stdvec(sample).expect("encodes");
        assert_eq!(
            usize::from(bytes[0]),
            number,
            "in the order of the variants: {sample:?}"
        );
        let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{sample:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default();
        format!("{of} {name}: {}", bytes.join(" "))
    };
    samples.iter().enumerate().map(line).collect()
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const MPA: MpaOptions = MpaOptions {
    revision: 2,
    crc: true,
    markers: MarkerUse::Prefer,
    aligned: true,
    rtr: RtrModes {
        write: false,
        read: true,
        send: false,
    },
    ird: 3,
    ord: 4,
};
const DEPTHS: PeerDepths = PeerDepths { ird: 5, ord: 6 };

fn requests() -> Vec<Request> {
    vec![
        Request::Hello { version: 1 },
        Request::QueryDevice,
        Request::AllocPd,
        Request::DeallocPd { pd: PdId(1) },
        Request::MayRegister {
            pd: PdId(1),
            length: 2,
        },
        Request::RegisterMemory(RegionSpec {
            pd: PdId(1),
            stream: Some(QpNum(5)),
            access: ACCESS,
            base: 2,
            offset: 3,
            length: 4,
            memory: MemoryKind::Adopted,
        }),
        Request::AllocStag {
            pd: PdId(1),
            kind: StagKind::WindowType2B,
        },
        Request::DeregisterMemory { stag: 1 },
        Request::CreateCq { depth: 1 },
        Request::ResizeCq {
            cq: CqId(1),
            depth: 1,
        },
        Request::DestroyCq { cq: CqId(1) },
        Request::CreateSrq {
            pd: PdId(1),
            depth: 2,
            max_sge: 3,
        },
        Request::ArmSrq {
            srq: SrqId(1),
            limit: 2,
        },
        Request::DestroySrq { srq: SrqId(1) },
        Request::CreateQp(QpAttributes {
            pd: PdId(1),
            send_cq: CqId(2),
            recv_cq: CqId(3),
            sq_depth: 4,
            rq_depth: 5,
            srq: Some(SrqId(6)),
            max_sge: 7,
            max_inline: 8,
            signal_all: true,
            receive_wait: Some(ReceiveWait::Millis(9)),
        }),
        Request::DestroyQp { qp: QpNum(1) },
        Request::QueryQp { qp: QpNum(1) },
        Request::ModifyQp {
            qp: QpNum(1),
            state: QpState::Rts,
        },
        Request::Listen(ListenSpec {
            local: SocketAddr::new(V4, 2),
            backlog: 3,
            transport: rnic_ipc::control::Transport::Tcp,
        }),
        Request::Unlisten {
            listener: ListenerId(1),
        },
        Request::Resolve {
            qp: QpNum(1),
            remote: SocketAddr::new(V4, 2),
            local: None,
            waited_ms: 3,
        },
        Request::Connect {
            qp: QpNum(1),
            spec: ConnectSpec {
                remote: SocketAddr::new(V6, 2),
                local: Some(V4),
                local_port: 3,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa: MPA,
                private_data: vec![7, 8],
            },
        },
        Request::Accept {
            request: ConnRequestId(1),
            qp: QpNum(2),
            mpa: MPA,
            private_data: vec![7, 8],
        },
        Request::Reject {
            request: ConnRequestId(1),
            private_data: vec![7, 8],
        },
        Request::QueryJoinNumbers,
        Request::Join {
            qp: QpNum(1),
            spec: JoinSpec {
                local: V4,
                remote: JoinEnd {
                    address: V6,
                    number: 2,
                },
                mpa: MPA,
            },
        },
        Request::SetPeerAccess {
            qp: QpNum(1),
            access: Access::REMOTE_READ,
        },
        Request::Disconnect {
            qp: QpNum(1),
            abort: true,
        },
        Request::QueryCounters { first: 1 },
        Request::Inspect {
            what: Kind::Regions,
            after: 1,
        },
        Request::Order(Order::DropClient {
            client: ClientId(1),
        }),
        Request::StartCapture(Filter {
            peer: Some(V4),
            port: Some(1),
            ends: Some((SocketAddr::new(V4, 2), SocketAddr::new(V6, 3))),
            direction: Some(Direction::Out),
            snap: Some(4),
        }),
        Request::StopCapture,
        Request::ListDevices,
        Request::OpenDevice(DeviceName::Interface("i".into())),
        Request::ListInterfaces,
        Request::Administer(DaemonOrder::Reload { reopen: true }),
    ]
}

fn responses() -> Vec<Response> {
    vec![
        Response::Welcome {
            client: ClientId(1),
            doorbells: 2,
            shards: 3,
        },
        Response::Device(DeviceInfo {
            interface: "i".into(),
            xdp_mode: "x".into(),
            addresses: vec![V4, V6],
            mtu: 1,
            queues: 2,
            max_sge: 3,
            max_inline: 4,
            max_queue_depth: 5,
            mac: [6; 6],
            link_up: true,
            link_mbits: 7,
            limits: ClientLimits {
                protection_domains: 7,
                regions: 8,
                registered_bytes: 9,
                completion_queues: 10,
                cq_depth: 11,
                shared_receive_queues: 12,
                queue_pairs: 13,
                backlog: 14,
            },
        }),
        Response::Pd(PdId(1)),
        Response::Region { stag: 1 },
        Response::Cq {
            cq: CqId(1),
            depth: 2,
        },
        Response::Srq {
            srq: SrqId(1),
            slots: 2,
        },
        Response::Qp {
            qp: QpNum(1),
            sq_slots: 2,
            rq_slots: 3,
        },
        Response::QpState(QpState::Rts),
        Response::Listening {
            listener: ListenerId(1),
            local: SocketAddr::new(V4, 2),
        },
        Response::Resolving,
        Response::Connecting {
            local: SocketAddr::new(V4, 2),
        },
        Response::JoinNumbers(JoinNumbers { slot: 1, key: 2 }),
        Response::Counters(vec![("c".into(), 1)]),
        Response::Done,
        Response::Inspected(Page {
            objects: Vec::new(),
            next: Some(1),
        }),
        Response::Capture,
        Response::Devices(vec!["i".into()]),
        Response::Interfaces(vec![("i".into(), Some("w".into()))]),
    ]
}

fn refusal_codes() -> Vec<RefusalCode> {
    vec![
        RefusalCode::Version,
        RefusalCode::Malformed,
        RefusalCode::UnknownObject,
        RefusalCode::Busy,
        RefusalCode::WrongState,
        RefusalCode::Limit,
        RefusalCode::BadMemory,
        RefusalCode::WrongPd,
        RefusalCode::AddressNotLocal,
        RefusalCode::PortInUse,
        RefusalCode::Unreachable,
        RefusalCode::Host,
        RefusalCode::ShuttingDown,
        RefusalCode::NotPermitted,
        RefusalCode::MemoryFault,
    ]
}

fn device_names() -> Vec<DeviceName> {
    vec![
        DeviceName::Interface("i".into()),
        DeviceName::Address(V4),
        DeviceName::Toward(V6),
    ]
}

fn kinds() -> Vec<StagKind> {
    vec![
        StagKind::WindowType1,
        StagKind::WindowType2B,
        StagKind::FastRegion,
    ]
}

fn events() -> Vec<Event> {
    let (qp, private_data) = (QpNum(1), vec![7, 8]);
    let (reason, message) = (DisconnectReason::Reset, String::from("m"));
    vec![
        Event::ConnectRequest {
            listener: ListenerId(1),
            request: ConnRequestId(2),
            local: SocketAddr::new(V4, 3),
            remote: SocketAddr::new(V4, 4),
            mpa: MPA,
            private_data: private_data.clone(),
        },
        Event::Established {
            qp,
            mpa: MPA,
            peer: Some(DEPTHS),
            private_data: private_data.clone(),
        },
        Event::Rejected {
            qp,
            peer: Some(DEPTHS),
            private_data,
        },
        Event::ConnectFailed {
            qp,
            reason,
            message: message.clone(),
        },
        Event::Disconnected {
            qp,
            reason,
            message,
        },
        Event::CqError { cq: CqId(1) },
        Event::SrqLimit { srq: SrqId(1) },
        Event::SessionEnded(Refusal {
            code: RefusalCode::MemoryFault,
            message: "m".to_owned(),
        }),
        Event::RequestGone {
            listener: ListenerId(1),
            request: ConnRequestId(2),
        },
    ]
}

fn reasons() -> Vec<DisconnectReason> {
    vec![
        DisconnectReason::Graceful,
        DisconnectReason::Aborted,
        DisconnectReason::Reset,
        DisconnectReason::Refused,
        DisconnectReason::TimedOut,
        DisconnectReason::NotMpa,
        DisconnectReason::PeerClosed,
        DisconnectReason::TerminateSent { control: 0x1203 },
        DisconnectReason::TerminateReceived { control: 0x1203 },
        DisconnectReason::LocalError,
        DisconnectReason::ShuttingDown,
        DisconnectReason::InterfaceGone,
        DisconnectReason::PeerFault { control: 0x2002 },
        DisconnectReason::AddressGone,
        DisconnectReason::BadSession,
        DisconnectReason::HostPolicy,
    ]
}

fn states() -> Vec<QpState> {
    vec![
        QpState::Idle,
        QpState::Connecting,
        QpState::Rts,
        QpState::Closing,
        QpState::Terminate,
        QpState::Error,
    ]
}
