//! Which peers clients may have: allow-lists of the interface, of the client's user, and of the listener.

use std::net::{IpAddr, SocketAddr};

use rnic_ipc::control::Refusal;
use rnic_ipc::id::{ClientId, ListenerId};
use rnic_net::{ListOwner, PeerRules};

use super::Prm;
use crate::refusal;
use crate::refused::Single;
use crate::table::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveListener {
    pub client: ClientId,
    pub listener: ListenerId,
    pub local: SocketAddr,
}

impl Prm {
    /// The lists that peers have to be in that connect to a client's listener at `local`, over an interface of
    /// this name. They hold until the limits change.
    pub fn listener_rules(
        &self,
        client: ClientId,
        local: SocketAddr,
        interface: &str,
    ) -> PeerRules {
        let mut rules = self.connection_rules(client, interface);
        let of_listeners = self.limits.listener_peers.iter();
        for peers in of_listeners.filter(|peers| peers.at.contains(local)) {
            rules.add(ListOwner::Listener, peers.allowed.clone());
        }
        rules
    }

    /// Leave to connect to `remote` over an interface of this name.
    ///
    /// # Errors
    ///
    /// `NotPermitted`, naming the list that does not have it.
    pub fn may_connect_to(
        &mut self,
        client: ClientId,
        remote: IpAddr,
        interface: &str,
    ) -> Result<(), Refusal> {
        let credentials = self.known(client)?;
        let (whose, counter) = match self.connection_rules(client, interface).refused_by(remote) {
            Some(ListOwner::Interface) => {
                (format!("interface {interface}"), Single::InterfacePeers)
            }
            Some(ListOwner::User) => (format!("user {}", credentials.uid), Single::UserPeers),
            // Lists of listeners are not for connections from here.
            Some(ListOwner::Listener) | None => return Ok(()),
        };
        self.refused.count(counter);
        Err(refusal::not_allowed(format!(
            "a connection to {remote} asked, but {whose}'s allowed_peers does not have that address: ask for \
             another peer, or have its network added to the list"
        )))
    }

    pub fn live_listeners(&self) -> impl Iterator<Item = LiveListener> {
        let all = self.listeners.after(0);
        let live = all.filter_map(|(number, slot)| Some((number, slot?)));
        let live = live.filter(|(_, slot)| slot.phase == Phase::Live);
        live.filter_map(|(number, slot)| {
            Some(LiveListener {
                client: slot.owner,
                listener: ListenerId(number),
                local: slot.object.local?,
            })
        })
    }

    /// The lists that a peer has to be in, at each of its addresses, with which a client connects over an interface of
    /// this name.
    pub fn connection_rules(&self, client: ClientId, interface: &str) -> PeerRules {
        let mut rules = PeerRules::default();
        if let Some(list) = self.limits.interface_peers.get(interface) {
            rules.add(ListOwner::Interface, list.clone());
        }
        let of_user = self.credentials(client).and_then(|credentials| {
            let limits = self.limits.users.of(credentials);
            limits.allowed_peers.clone()
        });
        if let Some(list) = of_user {
            rules.add(ListOwner::User, list);
        }
        rules
    }
}
