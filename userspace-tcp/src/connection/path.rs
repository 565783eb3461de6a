//! What the path's MTU means for a connection: how large the next segment may be, which segments go
//! out as IP fragments, and which were lost because of their size.

use userspace_net::Instant;
use userspace_net::pmtu::PathMtu;

use crate::config::Config;
use crate::congestion::Phase;
use crate::effects::Env;
use crate::interface::{Event, Payload, State};
use crate::options::TIMESTAMPS_LEN;
use crate::segment::HEADER_MIN;
use crate::seq::{Position, SeqNum};

use super::Connection;

/// Bytes of an IP header without options.
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;

impl<B> Connection<B> {
    /// The path is not known yet: it takes segments of `emss` bytes.
    pub(super) fn begin_path(&mut self, config: &Config) {
        let v4 = self.tuple.remote.addr.is_ipv4();
        self.path = PathMtu::new(config.path_mtu(), self.emss + self.overhead(), v4);
    }

    /// The most bytes that the next segment may have: a probe's, while one is wanted, but no more than
    /// the peer's window takes.
    pub(crate) fn mss(&self) -> usize {
        // No more than the first of the two.
        let fits = self.outbound.largest_fit().max(self.cuts_from.into());
        u64::from(self.passing()).min(fits) as usize
    }

    /// The most bytes that the next segment may have on the path, whatever the peer's window is.
    pub(crate) fn passing(&self) -> u32 {
        self.path.postable().saturating_sub(self.overhead())
    }

    /// See [`crate::Stack::wants_probe`].
    pub(crate) fn wants_probe(&self) -> bool {
        self.mss() > self.emss as usize
    }

    /// Bytes of a packet around the payload.
    pub(super) fn overhead(&self) -> u32 {
        let ip = if self.tuple.remote.addr.is_ipv4() {
            IPV4_HEADER
        } else {
            IPV6_HEADER
        };
        let options = if self.clock.in_use() {
            TIMESTAMPS_LEN
        } else {
            0
        };
        ip + (HEADER_MIN + options) as u32
    }

    /// A segment of `len` bytes was put at the end of the queue.
    pub(super) fn note_posted(&mut self, len: u32) {
        if self.is_oversized(len) {
            let end = self.outbound.tail();
            let size = len + self.overhead();
            self.path.posted(end - u64::from(len), end, size);
        }
    }

    /// Whether a segment of `len` bytes may be a probe of the path, behind which others have to be smaller.
    #[inline]
    pub(crate) fn is_oversized(&self, len: u32) -> bool {
        len > self.emss
    }

    /// How a segment goes out that begins at `seq`.
    pub(super) fn fragment_to(
        &mut self,
        now: Instant,
        seq: SeqNum,
        payload: &Payload<B>,
    ) -> Option<u32> {
        let size = payload.len + self.overhead();
        let start = self.outbound.position(seq).max(0).cast_unsigned();
        if self.path.is_probe(start) {
            if !payload.retransmission {
                return None;
            }
            self.path.probe_lost(now, true);
            // A tail loss probe that repairs this shows no congestion.
            self.tlp.forget();
        }
        self.path.fragment_to(size)
    }

    /// The largest segment that an ACK acknowledged has `len` bytes: the other connections to this
    /// host may know, if it was a full one, to the last whole word, and went in one piece.
    pub(super) fn tell_what_passes(&self, env: &mut Env<'_, B>, len: u32) {
        if len <= self.emss && len + 3 >= self.emss {
            let size = len + self.overhead();
            env.effects
                .mtu_evidence
                .note(self.tuple.remote.addr, size, env.now);
        }
    }

    /// An ACK was taken.
    pub(super) fn ask_path(&mut self, env: &mut Env<'_, B>, progress: bool) {
        let mut changed = false;
        if let Some(probe) = self.path.probe()
            && (probe.end <= self.outbound.una() || self.outbound.is_sacked(probe.start))
        {
            changed = self.path.probe_arrived(env.now);
        }
        if progress {
            let open = matches!(self.state, State::Established | State::CloseWait);
            let calm = self.congestion.phase() == Phase::Open && !self.outbound.any_lost();
            let room = self.outbound.window_max().min(self.congestion.cwnd());
            let probe = u64::from(self.path.plpmtu()) * 2;
            changed |= self.path.progress(env.now, open && calm && room >= probe);
        }
        if changed {
            self.path_changed(env);
        }
    }

    /// When the probe is lost, that is no sign of congestion.
    pub(super) fn excuse_probe(&mut self, now: Instant) {
        if let Some(probe) = self.path.probe()
            && self.outbound.excuse(probe.start)
        {
            self.path.probe_lost(now, self.outbound.all_lost_excused());
        }
    }

    /// A router has dropped the segment that holds `position`, because no packet larger than `mtu`
    /// passes. `None` when that can't be true; else whether anything is lost by it that was in flight.
    pub(super) fn on_too_big(
        &mut self,
        env: &mut Env<'_, B>,
        position: Position,
        mtu: u32,
    ) -> Option<bool> {
        let (start, len) = self.outbound.segment_at(position)?;
        let size = len + self.overhead();
        let probe = self.path.is_probe(start);
        let too_big = self.path.too_big(env.now, mtu, size, probe)?;
        let dropped = if too_big.narrower {
            let most = too_big.mtu.saturating_sub(self.overhead());
            self.outbound.lose_larger(most)
        } else {
            probe && self.outbound.lose_oversized(start)
        };
        if too_big.changed {
            self.path_changed(env);
        }
        Some(dropped)
    }

    /// See [`crate::Stack::link_mtu`].
    pub(crate) fn on_link_mtu(&mut self, env: &mut Env<'_, B>, mtu: u32) {
        if self.path.first_link(mtu) {
            self.path_changed(env);
        }
    }

    /// The retransmission timer ran out. True when the first segment is the probe: it is lost for
    /// its size.
    pub(super) fn probe_timed_out(&mut self, now: Instant) -> bool {
        let first = self.outbound.first_sent();
        let Some((start, _)) = first.filter(|&(start, _)| self.path.is_probe(start)) else {
            return false;
        };
        self.outbound.lose_oversized(start);
        self.path.probe_lost(now, true);
        true
    }

    /// The retransmission timer ran out for what is no probe.
    pub(super) fn doubt_path(&mut self, env: &mut Env<'_, B>) {
        let Some((_, len)) = self.outbound.first_sent() else {
            return;
        };
        let size = len + self.overhead();
        let host = self.tuple.remote.addr;
        let passes = env
            .effects
            .mtu_evidence
            .since(host, size, self.last_data_at);
        if self.path.timed_out(size, passes) {
            self.path_changed(env);
        }
    }

    fn path_changed(&mut self, env: &mut Env<'_, B>) {
        self.emss = self.path.plpmtu().saturating_sub(self.overhead());
        self.congestion.mss_changed(u64::from(self.emss));
        let mss = self.emss as usize;
        if matches!(self.state, State::Established | State::CloseWait) {
            let event = Event::MssChanged { mss };
            env.effects.events.push_back((self.id, event));
        }
    }
}
