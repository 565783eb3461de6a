//! Memory that the program has mapped for the peer to write to (riomap).

use std::sync::Arc;

use rustix::io::Errno;

use super::wire::{Entry, Mapped};
use crate::ffi::{Fail, Outcome};
use crate::pd::Mr;

/// What is mapped, by its place in the peer's table.
#[derive(Default)]
pub(crate) struct Iomap {
    places: Vec<Option<Place>>,
}

struct Place {
    mapped: Mapped,
    told: bool,
    /// Registered as long as it is here.
    _region: Arc<Mr>,
}

impl Iomap {
    /// Takes a place of the `entries` that the peer's table has.
    pub(crate) fn add(&mut self, entries: u16, mapped: Mapped, region: Arc<Mr>) -> Outcome<()> {
        let place = Place {
            mapped,
            told: false,
            _region: region,
        };
        let free = self.places.iter().position(Option::is_none);
        match free {
            Some(free) => self.places[free] = Some(place),
            None if self.places.len() < entries.into() => self.places.push(Some(place)),
            None => {
                let why = format!("the peer's table of mapped memory has {entries} entries");
                return Err(Fail::of(Errno::NOMEM, why));
            }
        }
        Ok(())
    }

    /// Gives up what is mapped at an address. The peer learns of it when it writes there.
    pub(crate) fn remove(&mut self, addr: u64, length: u32) -> Outcome<()> {
        let is_meant = |place: &Option<Place>| {
            let memory = place.as_ref().map(|place| place.mapped.memory);
            memory.is_some_and(|memory| memory.addr == addr && memory.length == length)
        };
        match self.places.iter_mut().find(|place| is_meant(place)) {
            Some(place) => {
                *place = None;
                Ok(())
            }
            None => Err(Errno::INVAL.into()),
        }
    }

    /// What the peer was not told of yet, and its place.
    pub(crate) fn next_untold(&self) -> Option<(u16, Mapped)> {
        let mut places = self.places.iter().zip(0..);
        places.find_map(|(place, index)| {
            let place = place.as_ref().filter(|place| !place.told)?;
            Some((index, place.mapped))
        })
    }

    pub(crate) fn told(&mut self, index: u16) {
        if let Some(Some(place)) = self.places.get_mut(usize::from(index)) {
            place.told = true;
        }
    }
}

/// Memory at `addr` under the offset by which the peer is to name it.
pub(crate) fn mapped(addr: u64, length: usize, key: u32, offset: u64) -> Outcome<Mapped> {
    let length = u32::try_from(length)
        .map_err(|_| Fail::of(Errno::INVAL, "mapped memory is less than 4 GiB"))?;
    Ok(Mapped {
        offset,
        memory: Entry { addr, key, length },
    })
}
