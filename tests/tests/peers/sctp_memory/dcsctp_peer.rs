//! `dcsctp`, the SCTP of WebRTC's data channels.

use std::collections::VecDeque;
use std::time::Duration;

use dcsctp::api::{
    DcSctpSocket, ErrorKind, Message as Theirs, Options, PpId, SendOptions, SocketEvent,
    SocketState, SocketTime, StreamId,
};

use super::world::{Message, Peer};

pub struct Dcsctp {
    socket: Box<dyn DcSctpSocket>,
    out: VecDeque<Vec<u8>>,
    is_over: bool,
}

impl Dcsctp {
    pub fn new() -> Self {
        Self {
            socket: dcsctp::new_socket("peer", &Options::default()),
            out: VecDeque::new(),
            is_over: false,
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.socket.poll_event() {
            match event {
                SocketEvent::SendPacket(packet) => self.out.push_back(packet),
                SocketEvent::OnClosed() | SocketEvent::OnAborted(..) => self.is_over = true,
                // Our INIT ACK says which parameters we do not know, as it has to. It does not know how we say it.
                SocketEvent::OnError(ErrorKind::PeerReported, _) => {}
                // A packet that came twice meets no association.
                SocketEvent::OnError(..) if self.is_over => {}
                SocketEvent::OnError(kind, what) => panic!("dcsctp: {kind:?}: {what}"),
                _ => {}
            }
        }
    }
}

impl Peer for Dcsctp {
    fn connect(&mut self) {
        self.socket.connect();
    }

    fn receive(&mut self, now: Duration, packet: &[u8]) {
        self.advance(now);
        self.socket.handle_input(packet);
        self.events();
    }

    fn advance(&mut self, now: Duration) {
        self.socket.advance_time(SocketTime::zero() + now);
        self.events();
    }

    fn deadline(&self) -> Option<Duration> {
        let deadline = self.socket.poll_timeout();
        (deadline != SocketTime::infinite_future()).then(|| deadline - SocketTime::zero())
    }

    fn packets(&mut self, _now: Duration) -> Vec<Vec<u8>> {
        self.events();
        self.out.drain(..).collect()
    }

    fn is_connected(&self) -> bool {
        self.socket.state() == SocketState::Connected
    }

    fn send(&mut self, (stream, ppid, bytes): Message) {
        let message = Theirs::new(StreamId(stream), PpId(ppid), bytes);
        let options = SendOptions {
            unordered: true,
            ..SendOptions::default()
        };
        self.socket.send(message, &options).expect("it has room");
    }

    fn message(&mut self) -> Option<Message> {
        let message = self.socket.get_next_message()?;
        Some((message.stream_id.0, message.ppid.0, message.payload))
    }

    fn shut_down(&mut self) {
        self.socket.shutdown();
    }

    fn abort(&mut self) {
        self.socket.close();
        self.is_over = true;
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
