//! Ends of internal links come while the shard runs, and take the place of those whose other end is gone.

use rnic_ipc::control::DisconnectReason;
use rnic_xsk::{InternalEnd, InternalPort, Port};

use super::Ctl;
use crate::command::CommandError;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// Has an internal link end here from now on, as a further one or in the place of another. Returns the end that
    /// was there; connections over it are over.
    pub(in crate::shard) fn set_internal_link<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        link: usize,
        end: InternalEnd,
    ) -> Result<Option<Box<InternalPort>>, CommandError> {
        let links = dp.ports.len() - dp.interface_ports;
        if link > links {
            let message = format!("internal link {link} asked, but {links} is the next");
            return Err(CommandError::Invalid(message));
        }
        let place = dp.interface_ports + link;
        let mut end = InternalPort::new(end, &dp.frames.umem);
        if link == links {
            let none = || CommandError::Invalid("no port of this shard is internal".to_owned());
            dp.ports.push(P::of_internal(end).ok_or_else(none)?);
            tx.link.port_added();
            return Ok(None);
        }
        for id in dp.conns.ids_where(|conn| conn.port() == place) {
            // Most were reset when the other end went.
            let message =
                "the interface of the peer's address was closed: connect again".to_owned();
            self.abort(dp, tx, id, DisconnectReason::Reset, Some(message));
        }
        // An internal link is done with a frame once it is flushed, as all are by now.
        tx.take_completed(dp);
        if let Some(port) = dp.ports[place].internal() {
            port.exchange(&mut end);
        }
        Ok(Some(Box::new(end)))
    }
}
