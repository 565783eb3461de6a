//! What clients ask of the MPA start-up, and learn of it, in its own words.

use rnic_ipc::control::{MarkerUse, MpaOptions, PeerDepths, RtrModes};
use rnic_proto::enhanced::{ReadDepths, RtrSet};
use rnic_proto::mpa::startup::{InitiatorOptions, Negotiated, Revision, StartupError};

/// What to ask of a responder.
pub(super) fn initiator_options(
    mpa: &MpaOptions,
    markers: bool,
) -> Result<InitiatorOptions, StartupError> {
    let revision = Revision::from_number(mpa.revision)?;
    let peer_to_peer = match revision {
        Revision::One => RtrSet::NONE,
        Revision::Two => indications(mpa.rtr),
    };
    Ok(InitiatorOptions {
        revision,
        crc: mpa.crc,
        markers,
        aligned: mpa.aligned,
        depths: depths(mpa),
        peer_to_peer,
    })
}

/// What a client says of indications, as the start-up has it.
pub(super) fn indications(modes: RtrModes) -> RtrSet {
    let RtrModes { write, read, send } = modes;
    RtrSet { write, read, send }
}

/// The other way round.
pub(super) fn modes(indications: RtrSet) -> RtrModes {
    let RtrSet { write, read, send } = indications;
    RtrModes { write, read, send }
}

pub(super) fn depths(mpa: &MpaOptions) -> ReadDepths {
    ReadDepths {
        ird: mpa.ird,
        ord: mpa.ord,
    }
}

pub(super) fn agreed(negotiated: &Negotiated) -> MpaOptions {
    MpaOptions {
        revision: negotiated.revision.number(),
        crc: negotiated.crc,
        markers: MarkerUse::of_flag(negotiated.markers_in.are_on()),
        aligned: negotiated.aligned,
        rtr: modes(negotiated.rtr.map_or(RtrSet::NONE, RtrSet::only)),
        ird: negotiated.ird,
        ord: negotiated.ord,
    }
}

/// What the peer said of its depths, for the application.
pub(super) fn said(depths: ReadDepths) -> PeerDepths {
    PeerDepths {
        ird: depths.ird,
        ord: depths.ord,
    }
}
