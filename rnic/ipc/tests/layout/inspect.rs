//! A sample of every kind of object that can be looked at, and of every order.

use std::net::{Ipv4Addr, SocketAddr};

use rnic_ipc::control::{Access, MemoryKind, QpState};
use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::inspect::{
    AddressState, ClientInfo, ConnectionInfo, CqInfo, DaemonOrder, Holding, Kind, LimitInfo,
    ListenerInfo, LogLevel, Object, Order, PeerAddress, QpInfo, RegionInfo, Scope, Stage,
};

pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::Clients,
        Kind::Connections,
        Kind::QueuePairs,
        Kind::CompletionQueues,
        Kind::Regions,
        Kind::Listeners,
        Kind::Limits,
    ]
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port))
}

pub fn objects() -> Vec<Object> {
    vec![
        Object::Client(ClientInfo {
            client: ClientId(1),
            pid: 2,
            uid: 3,
            gid: 4,
            program: "p".into(),
            holds: vec![Holding {
                name: "h".into(),
                held: 5,
                limit: 6,
            }],
            refused: 7,
        }),
        Object::Connection(ConnectionInfo {
            connection: 1,
            client: Some(ClientId(2)),
            qp: Some(QpNum(3)),
            local: at(4),
            remote: at(5),
            stage: Stage::Rdma,
            transport: rnic_ipc::control::Transport::Tcp,
            state: "t".into(),
            rtt_us: Some(6),
            rtt_deviation_us: 7,
            mss: 8,
            cwnd: 9,
            in_flight: 10,
            bytes_in: 11,
            bytes_out: 12,
            retransmits: 13,
            timeouts: 14,
            bytes_out_of_order: 15,
            udp_port: Some(16),
            peer_addresses: vec![PeerAddress {
                address: at(17).ip(),
                state: AddressState::Inactive,
            }],
        }),
        Object::QueuePair(QpInfo {
            qp: QpNum(1),
            client: ClientId(2),
            state: QpState::Rts,
            pd: PdId(3),
            send_cq: CqId(4),
            recv_cq: CqId(5),
            srq: Some(SrqId(6)),
            sq_depth: 7,
            rq_depth: 8,
            connection: Some((at(9), at(10))),
            held: Some(11),
        }),
        Object::CompletionQueue(CqInfo {
            cq: CqId(1),
            client: ClientId(2),
            depth: 3,
            users: 4,
        }),
        Object::Region(RegionInfo {
            index: 1,
            client: ClientId(2),
            pd: PdId(3),
            window: false,
            memory: MemoryKind::Adopted,
            valid: true,
            qp: Some(QpNum(4)),
            access: Access::LOCAL_WRITE,
            bytes: 5,
        }),
        Object::Listener(ListenerInfo {
            listener: ListenerId(1),
            client: ClientId(2),
            transport: rnic_ipc::control::Transport::Tcp,
            local: at(3),
        }),
        Object::Limit(LimitInfo {
            scope: Scope::Client,
            name: "l".into(),
            held: Some(1),
            limit: 2,
        }),
    ]
}

pub fn orders() -> Vec<Order> {
    vec![
        Order::DropClient {
            client: ClientId(1),
        },
        Order::DropConnection {
            connection: 1,
            ends: (at(2), at(3)),
        },
        Order::SetLogLevel(LogLevel::Debug),
    ]
}

pub fn daemon_orders() -> Vec<DaemonOrder> {
    vec![
        DaemonOrder::Reload { reopen: true },
        DaemonOrder::Reopen {
            interface: "i".into(),
        },
    ]
}

pub fn stages() -> Vec<Stage> {
    vec![
        Stage::Requesting,
        Stage::HalfOpen,
        Stage::AwaitingRequest,
        Stage::Requested,
        Stage::Rdma,
        Stage::Over,
    ]
}

pub fn scopes() -> Vec<Scope> {
    vec![Scope::Device, Scope::User, Scope::Client, Scope::Object]
}

pub fn levels() -> Vec<LogLevel> {
    vec![
        LogLevel::Off,
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
    ]
}
