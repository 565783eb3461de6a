//! Ids of connection requests: unique over all shards of all devices of a process, and each says whose it is.
//!
//! From the highest bit on: the device's number (8 bits), the shard's (6), and the shard's own count (18).

use rnic_ipc::id::ConnRequestId;

use super::SHARDS_MAX;

const SHARD_BITS: u32 = 6;
const COUNT_BITS: u32 = 18;
/// Requests that a shard tells apart.
const COUNTS: u32 = 1 << COUNT_BITS;

const _: () = assert!(SHARDS_MAX == 1 << SHARD_BITS);

/// The id of a request of the shard with this number, of the device with that, and the count after it.
pub(super) fn id((device, shard): (u8, u8), count: u32) -> (ConnRequestId, u32) {
    let count = (count + 1) % COUNTS;
    let device = u32::from(device) << (SHARD_BITS + COUNT_BITS);
    let shard = u32::from(shard) << COUNT_BITS;
    (ConnRequestId(device | shard | count), count)
}

/// The number, within its device, of the shard that has a request.
pub fn shard_of(request: ConnRequestId) -> usize {
    (request.0 >> COUNT_BITS) as usize % SHARDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_device_shard_and_count_and_say_the_shard() {
        let mut ids = Vec::new();
        for number in [(0, 0), (0, 1), (1, 0), (255, 63)] {
            for count in [0, 1, COUNTS - 2, COUNTS - 1] {
                let (id, next) = id(number, count);
                assert!(next < COUNTS);
                assert_eq!(shard_of(id), usize::from(number.1));
                ids.push(id.0);
            }
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
