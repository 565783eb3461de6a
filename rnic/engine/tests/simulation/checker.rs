//! What the nodes say, compared with what they may say (RFC 5040 section 5.5). Each completion comes once and in its
//! order. Each Delivery comes with all that must have been placed before it. Each end has a cause.

use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::control::{DisconnectReason, Event};
use rnic_ipc::work::{
    Completion, WC_SOLICITED, WC_WITH_IMMEDIATE, WC_WITH_INVALIDATE, WcStatus, WrOpcode,
};

use crate::memory::Party;
use crate::node::TIGHT_CQ;
use crate::simulation::{Simulation, Validity};
use crate::stream::{Life, Message, Posted, Sent, What, is_request};

/// Of [`crate::stream::End::failed`].
const AT_FAULT: usize = 0;
const RECEIVES: usize = 1;
const ANY: usize = 2;

impl Simulation {
    /// Looks at everything that a node has said.
    pub fn observe(&mut self, node: usize) {
        while let Some(port) = self.network.take_damaged() {
            let stream = self.streams.iter().position(|stream| stream.port == port);
            self.doom_somehow(stream.unwrap(), "bytes damaged");
        }
        let was_dead = self.dead_cqs[node];
        let completions = self.nodes[node].completions();
        let mut events = Vec::new();
        while let Some(event) = self.nodes[node].shard.poll_event() {
            if let ShardEvent::Client {
                event: Event::CqError { cq },
                ..
            } = event
            {
                self.overflowed(node, cq, &completions);
            }
            events.push(event);
        }
        self.batch = completions.iter().map(|(_, one)| one.wr_id).collect();
        for (cq, completion) in completions {
            assert!(!was_dead || cq != TIGHT_CQ, "a dead CQ takes completions");
            self.note_completion(node, cq, &completion);
            self.completion(node, &completion);
        }
        for event in events {
            self.event(node, event);
        }
    }

    fn completion(&mut self, node: usize, completion: &Completion) {
        self.note(|| format!("node {node}: {completion:?}"));
        let party = self.ends.get(&(node, completion.qp));
        let party = *party.expect("a completion of a queue pair that exists");
        let status = WcStatus::from_u8(completion.status).unwrap();
        if completion.opcode == WrOpcode::Recv as u8 {
            self.receive_completed(party, completion, status);
        } else {
            self.send_completed(party, completion, status);
        }
    }

    fn send_completed(&mut self, party: Party, completion: &Completion, status: WcStatus) {
        let posted = loop {
            let posted = self.streams[party.stream].ends[party.end].sq.pop_front();
            let posted = posted.expect("a completion of work that is posted and has not completed");
            if posted.id == completion.wr_id {
                break posted;
            }
            // Rule 15: those before it have completed too, and only success is silent.
            assert!(!posted.signaled, "the completion of {posted:?} is lost");
            self.succeeded(party, &posted);
        };
        assert_eq!(completion.opcode, posted.opcode as u8, "{posted:?}");
        if status == WcStatus::Success {
            assert!(
                posted.signaled,
                "a completion that nobody wants: {posted:?}"
            );
            if is_request(posted.opcode) {
                assert_eq!(completion.byte_len, posted.len, "{posted:?}");
            }
            return self.succeeded(party, &posted);
        }
        self.send_failed(party, &posted, status);
        if let Some(local) = posted.local {
            self.local_done(local, false);
        }
        let node = self.streams[party.stream].ends[party.end].node;
        self.memories[node].unlock(posted.id);
        if is_request(posted.opcode) {
            // Its Request may still be on its way to the peer: the source stays in use while that
            // end lives.
            self.memories[node].unanswered(posted.id);
        }
    }

    fn succeeded(&mut self, party: Party, posted: &Posted) {
        let end = &mut self.streams[party.stream].ends[party.end];
        assert!(!end.failed[ANY], "success behind a failure: {posted:?}");
        assert!(!posted.hopeless, "success of what can't be: {posted:?}");
        let (node, id) = (end.node, posted.id);
        for message in end.line.iter_mut().filter(|message| message.id == id) {
            message.handed = true;
        }
        self.memories[node].unlock(id);
        if let Some(local) = posted.local {
            self.local_done(local, true);
        }
        if !is_request(posted.opcode) {
            return;
        }
        self.read_is_over(party, id);
        // Rules 12 and 17: the Request was delivered, so everything before it is placed, and the
        // Sends before it were delivered (rule 10).
        let before = self.take_line(party, |message| message.id == id);
        for message in before {
            match message.what {
                What::Write => self.sink_placed(party, message.id),
                What::Read | What::Atomic if message.id == id => {}
                // Its completion found no room.
                What::Send(_) if self.is_mute(Self::peer(party)) => {
                    self.sink_given_up(party, message.id);
                }
                _ => panic!("a Read completed before what must come before it: {message:?}"),
            }
        }
        // Memory that was taken away meanwhile may hold anything.
        let kept = self.memories[node].expects(id);
        self.memories[node].placed(id);
        if let Some(sink) = posted.sink {
            let original = kept.then(|| self.memories[node].word(sink));
            let peer = self.streams[party.stream].ends[1 - party.end].node;
            self.memories[peer].atomic_done(id, original);
        }
    }

    /// The messages of an end up to the first that `last` means, that one included.
    fn take_line(&mut self, party: Party, last: impl Fn(&Message) -> bool) -> Vec<Message> {
        let line = &mut self.streams[party.stream].ends[party.end].line;
        match line.iter().position(last) {
            Some(index) => line.drain(..=index).collect(),
            None => Vec::new(),
        }
    }

    /// A message of this end is placed at the other.
    fn sink_placed(&mut self, party: Party, id: u64) {
        let node = self.streams[party.stream].ends[1 - party.end].node;
        self.memories[node].placed(id);
    }

    /// Nobody knows whether it was.
    fn sink_given_up(&mut self, party: Party, id: u64) {
        let node = self.streams[party.stream].ends[1 - party.end].node;
        self.memories[node].given_up(id);
    }

    /// The source of a Read may be written again.
    fn read_is_over(&mut self, party: Party, id: u64) {
        let node = self.streams[party.stream].ends[1 - party.end].node;
        self.memories[node].unlock(id);
    }

    /// Work that failed takes all later work along. One piece of work at most fails by a fault of its own. None does
    /// after a Send or Write that was not handed to TCP, which is one that is flushed, but not together with a Read
    /// before it.
    fn send_failed(&mut self, party: Party, posted: &Posted, status: WcStatus) {
        // The sink of a request that never arrives is in nobody's way, and may be taken away.
        let revoked = posted.hopeless && status == WcStatus::LocalProtection;
        if revoked {
            self.doom_somehow(party.stream, "a sink is revoked");
        }
        self.may_fail(party, status, AT_FAULT, &posted.errors);
        let failed = &mut self.streams[party.stream].ends[party.end].failed;
        let flushed = status == WcStatus::WorkRequestFlushed;
        let may_be_sent = is_request(posted.opcode) || failed[ANY];
        failed[AT_FAULT] |= !(flushed && may_be_sent);
        failed[ANY] = true;
    }

    fn may_fail(&mut self, party: Party, status: WcStatus, queue: usize, errors: &[WcStatus]) {
        let stream = &self.streams[party.stream];
        let opening = stream.ends[party.end].life == Life::Opening;
        if opening && !self.is_calm() && !stream.is_doomed() {
            // The event that says so comes behind the completions.
            self.doom_somehow(party.stream, "no connection over a bad network");
        }
        let stream = &self.streams[party.stream];
        assert!(stream.is_doomed(), "{party:?}: {status:?} without a cause");
        let vague = stream.certain_cause().is_none();
        let behind = stream.ends[party.end].failed[queue];
        assert!(
            status == WcStatus::WorkRequestFlushed
                || !behind && (vague || errors.contains(&status)),
            "{party:?}: {status:?}, but only {errors:?} can be; behind a failure: {behind}"
        );
    }

    fn receive_completed(&mut self, party: Party, completion: &Completion, status: WcStatus) {
        let srq = self.end_of(party).srq;
        let receive = match srq {
            Some(srq) => self.take_shared(party, srq, completion.wr_id),
            None => {
                let receive = self.end_mut(party).rq.pop_front();
                receive.expect("a receive that is posted")
            }
        };
        let node = self.end_of(party).node;
        assert_eq!(receive.id, completion.wr_id, "receives complete in order");
        self.memories[node].unlock(receive.id);
        if status != WcStatus::Success {
            self.may_fail(party, status, RECEIVES, &receive.errors);
            self.streams[party.stream].ends[party.end].failed[RECEIVES] = true;
            self.memories[node].given_up(receive.send.unwrap_or(receive.id));
            return;
        }
        let end = &self.streams[party.stream].ends[party.end];
        assert!(!end.failed[RECEIVES], "success behind a failure");
        // Rule 10: Sends are delivered in their order, and Writes before them are placed.
        let from = Party {
            end: 1 - party.end,
            ..party
        };
        let is_send = |message: &Message| matches!(message.what, What::Send(_));
        let mut before = self.take_line(from, is_send);
        let send = before.pop().expect("a Send that is under way");
        let What::Send(sent) = send.what else {
            unreachable!();
        };
        for message in before.iter().rev() {
            match message.what {
                What::Write => {}
                // Rule 18, and RFC 7306 section 5.4: its response may come later.
                What::Read | What::Atomic => self.streams[from.stream].ends[from.end]
                    .line
                    .push_front(message.clone()),
                _ => panic!("a Send was delivered behind {message:?}"),
            }
        }
        for message in before.iter().filter(|m| matches!(m.what, What::Write)) {
            self.memories[node].placed(message.id);
        }
        self.memories[node].placed(send.id);
        if srq.is_some() {
            self.memories[node].filled(receive.id, &sent.bytes);
            self.count("shared_receives_taken");
        } else {
            assert_eq!(sent.receive, Some(receive.id), "{completion:?}");
        }
        self.check_delivery(node, &sent, completion);
    }

    fn check_delivery(&mut self, node: usize, sent: &Sent, completion: &Completion) {
        assert_eq!(
            completion.byte_len as usize,
            sent.bytes.len(),
            "{completion:?}"
        );
        let solicited = completion.flags & WC_SOLICITED != 0;
        let invalidates = completion.flags & WC_WITH_INVALIDATE != 0;
        assert_eq!(solicited, sent.solicited, "{completion:?}");
        assert_eq!(invalidates, sent.invalidate.is_some(), "{completion:?}");
        let immediate = completion.flags & WC_WITH_IMMEDIATE != 0;
        let immediate = immediate.then_some(completion.immediate);
        assert_eq!(immediate, sent.immediate, "{completion:?}");
        let Some(stag) = sent.invalidate else {
            return;
        };
        assert_eq!(completion.invalidated, stag.0, "{completion:?}");
        let found = |region: &crate::simulation::Region| region.node == node && region.stag == stag;
        let index = self.regions.iter().position(found);
        let region = &mut self.regions[index.unwrap()];
        assert_eq!(region.validity, Validity::Expected);
        region.validity = Validity::Valid;
        let index = index.unwrap();
        self.rights_end(index, Validity::Invalidated);
    }

    fn event(&mut self, node: usize, event: ShardEvent) {
        self.note(|| format!("node {node}: {event:?}"));
        match event {
            ShardEvent::Client { event, .. } => self.client_event(node, event),
            ShardEvent::RequestGone { .. }
            | ShardEvent::Released { .. }
            | ShardEvent::PathDoubtful { .. } => {}
            ShardEvent::ClientFault { message, .. } => panic!("node {node}: {message}"),
            wrong @ (ShardEvent::PeerRefused { .. }
            | ShardEvent::HostPolicyDropped { .. }
            | ShardEvent::GuessesPaused { .. }
            | ShardEvent::RegionFault { .. }
            | ShardEvent::Join { .. }) => {
                panic!("node {node}: {wrong:?}")
            }
        }
    }

    fn client_event(&mut self, node: usize, event: Event) {
        match event {
            Event::ConnectRequest {
                request,
                private_data,
                ..
            } => {
                let port = private_data.try_into().map(u16::from_be_bytes);
                let port = port.expect("the initiator says its port");
                let stream = self.streams.iter().position(|it| it.port == port).unwrap();
                let end = &self.streams[stream].ends[1];
                let (qp, mpa) = (end.qp, end.mpa);
                let private_data = Vec::new();
                let accept = Command::Accept {
                    request,
                    qp,
                    mpa,
                    private_data: private_data.clone(),
                };
                self.streams[stream].accepted = self.nodes[node].execute(accept, self.now).is_ok();
                if !self.streams[stream].accepted {
                    // The queue pair was destroyed meanwhile, or the request is gone.
                    assert!(self.streams[stream].is_doomed());
                    let reject = Command::Reject {
                        request,
                        private_data,
                    };
                    let _ = self.nodes[node].execute(reject, self.now);
                }
                self.due[node] = true;
            }
            Event::Established { qp, .. } => {
                let party = self.ends[&(node, qp.0)];
                let stream = &mut self.streams[party.stream];
                stream.ends[party.end].life = Life::Up;
                let both = stream.ends.iter().all(|end| end.life == Life::Up);
                if both && stream.has_crc() {
                    self.network.guard(stream.port);
                }
            }
            Event::Rejected { qp, .. } => {
                self.opening_failed(node, qp.0, DisconnectReason::Refused)
            }
            Event::ConnectFailed { qp, reason, .. } => self.opening_failed(node, qp.0, reason),
            Event::Disconnected { qp, reason, .. } => {
                let party = self.ends[&(node, qp.0)];
                self.check_reason(party, reason);
                self.ended(party, Some(reason));
            }
            Event::SrqLimit { srq } => self.limit_reached(node, srq),
            // Looked at before the completions.
            Event::CqError { .. } => {}
            // The device's to say, of a shard's client.
            Event::RequestGone { request, .. } => panic!("node {node}: request {request} is gone"),
            Event::SessionEnded(why) => panic!("node {node}: {why}"),
        }
    }

    fn opening_failed(&mut self, node: usize, qp: u32, reason: DisconnectReason) {
        let party = self.ends[&(node, qp)];
        let doomed = self.streams[party.stream].is_doomed();
        assert!(doomed || !self.is_calm(), "no connection: {reason:?}");
        self.doom_somehow(party.stream, "no connection");
        self.ended(party, None);
    }

    fn check_reason(&self, party: Party, reason: DisconnectReason) {
        // What a bad network, or two causes at once, can make of anything.
        const BESIDES: [DisconnectReason; 4] = [
            DisconnectReason::Reset,
            DisconnectReason::TimedOut,
            DisconnectReason::PeerClosed,
            DisconnectReason::LocalError,
        ];
        let stream = &self.streams[party.stream];
        assert!(
            stream.is_doomed(),
            "{party:?}: ended by {reason:?} without a cause"
        );
        let vague = stream
            .causes
            .iter()
            .any(|c| c.reasons[party.end].is_empty());
        let named = stream
            .causes
            .iter()
            .any(|c| c.reasons[party.end].contains(&reason));
        let blurred = !self.is_calm() || stream.causes.len() > 1;
        // After a FIN no Terminate says what it would have said.
        let untold = match reason {
            DisconnectReason::PeerFault { control } => stream.causes.iter().any(|cause| {
                cause.reasons[party.end].contains(&DisconnectReason::TerminateSent { control })
            }),
            _ => false,
        };
        assert!(
            vague || named || blurred && (untold || BESIDES.contains(&reason)),
            "{party:?}: ended by {reason:?}; {:?}",
            stream.causes
        );
    }

    /// An end has no connection any more: all its work has completed, and nothing is placed.
    pub fn ended(&mut self, party: Party, reason: Option<DisconnectReason>) {
        if self.has_dead_cq(party) {
            self.abandon(party);
        }
        let end = &mut self.streams[party.stream].ends[party.end];
        end.life = Life::Over;
        let (sq, rq, node) = (std::mem::take(&mut end.sq), end.rq.len(), end.node);
        assert_eq!(rq, 0, "{party:?}: receives that were not flushed");
        for posted in &sq {
            assert!(!posted.signaled, "{party:?}: not flushed: {posted:?}");
            self.succeeded(party, posted);
        }
        self.peers_line_ends(party, reason);
        let qp = self.end_of(party).qp;
        self.windows_of_stream_end(node, qp);
        self.memories[node].check(node);
    }

    /// What the peer had under way to this end: placed if that is sure, or never will be.
    pub fn peers_line_ends(&mut self, party: Party, reason: Option<DisconnectReason>) {
        let stream = &mut self.streams[party.stream];
        let node = stream.ends[party.end].node;
        self.memories[node].end_reads(Party {
            end: 1 - party.end,
            ..party
        });
        let certain = stream.certain_cause().is_some();
        let mute = self.is_mute(party);
        let stream = &mut self.streams[party.stream];
        let from = &mut stream.ends[1 - party.end];
        let line = std::mem::take(&mut from.line);
        let fatal = line.iter().position(|m| matches!(m.what, What::Fatal));
        for (index, message) in line.into_iter().enumerate() {
            let sure = match reason {
                Some(DisconnectReason::Graceful) => message.handed,
                // The error was found in order, so all before it was delivered.
                Some(DisconnectReason::TerminateSent { .. }) => {
                    certain && fatal.is_some_and(|fatal| index < fatal)
                }
                _ => false,
            };
            match message.what {
                What::Write if sure => self.memories[node].placed(message.id),
                What::Send(_) if sure && !mute => panic!("{party:?}: not delivered: {message:?}"),
                What::Write | What::Send(_) | What::Atomic => {
                    self.memories[node].given_up(message.id);
                }
                What::Read | What::Fatal | What::Nothing => {}
            }
        }
    }
}
