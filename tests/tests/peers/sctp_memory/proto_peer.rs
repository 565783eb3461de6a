//! `sctp-proto`, the SCTP of str0m.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier, ReliabilityType, ServerConfig,
};

use super::world::{Message, PPID, Peer};

pub struct Proto {
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    begun: Instant,
    us: SocketAddr,
    came: VecDeque<Message>,
    is_connected: bool,
    is_over: bool,
}

impl Proto {
    pub fn new() -> Self {
        let server = Some(Arc::new(ServerConfig::new()));
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::new()), server),
            association: None,
            begun: Instant::now(),
            us: ([198, 18, 0, 1], 5000).into(),
            came: VecDeque::new(),
            is_connected: false,
            is_over: false,
        }
    }

    fn association(&mut self) -> &mut Association {
        &mut self.association.as_mut().expect("it was set up").1
    }

    fn events(&mut self) {
        let Some((_, association)) = &mut self.association else {
            return;
        };
        while let Some(event) = association.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::AssociationLost { .. } => self.is_over = true,
                Event::HandshakeFailed { reason } => panic!("sctp-proto: {reason}"),
                _ => {}
            }
        }
        for id in association.stream_ids() {
            let mut stream = association.stream(id).expect("it is there");
            while let Ok(Some(chunks)) = stream.read_sctp() {
                let mut bytes = vec![0; chunks.len()];
                chunks.read(&mut bytes).expect("as long as the message");
                let ppid = match chunks.ppi {
                    PayloadProtocolIdentifier::Binary => PPID,
                    other => panic!("a message of {other}"),
                };
                self.came.push_back((id, ppid, bytes));
            }
        }
    }
}

impl Peer for Proto {
    fn connect(&mut self) {
        let connected = self.endpoint.connect(ClientConfig::new(), self.us);
        self.association = Some(connected.expect("a good address"));
    }

    fn receive(&mut self, now: Duration, packet: &[u8]) {
        let packet = Bytes::copy_from_slice(packet);
        let handled = self
            .endpoint
            .handle(self.begun + now, self.us, None, None, packet);
        match handled {
            Some((handle, DatagramEvent::NewAssociation(new))) => {
                assert!(self.association.is_none(), "a second association");
                self.association = Some((handle, new));
            }
            Some((_, DatagramEvent::AssociationEvent(event))) => {
                self.association().handle_event(event);
            }
            None => {}
        }
        self.events();
    }

    fn advance(&mut self, now: Duration) {
        let now = self.begun + now;
        if let Some((_, association)) = &mut self.association {
            association.handle_timeout(now);
        }
        self.events();
    }

    fn deadline(&self) -> Option<Duration> {
        let (_, association) = self.association.as_ref()?;
        let deadline = association.poll_timeout()?;
        Some(deadline.saturating_duration_since(self.begun))
    }

    fn packets(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let Some((_, association)) = &mut self.association else {
            return Vec::new();
        };
        let mut all = Vec::new();
        while let Some(transmit) = association.poll_transmit(self.begun + now) {
            if let Payload::RawEncode(packets) = transmit.payload {
                all.extend(packets.iter().map(|packet| packet.to_vec()));
            }
        }
        all
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn send(&mut self, (stream, ppid, bytes): Message) {
        let ppid = PayloadProtocolIdentifier::from(ppid);
        let association = self.association();
        if !association.stream_ids().contains(&stream) {
            association.open_stream(stream, ppid).expect("a stream");
        }
        let mut stream = association.stream(stream).expect("it is open");
        let set = stream.set_reliability_params(true, ReliabilityType::Reliable, 0);
        set.expect("it is open");
        stream.write_with_ppi(&bytes, ppid).expect("it has room");
    }

    fn message(&mut self) -> Option<Message> {
        self.came.pop_front()
    }

    fn shut_down(&mut self) {
        self.association().shutdown().expect("it is established");
    }

    fn abort(&mut self) {
        unreachable!("it has no ABORT");
    }

    /// It does not know the T bit: when our SHUTDOWN COMPLETE was lost it does not hear that we are gone.
    fn is_over(&self) -> bool {
        let association = self.association.as_ref();
        self.is_over || association.is_some_and(|(_, association)| association.is_closing())
    }
}
