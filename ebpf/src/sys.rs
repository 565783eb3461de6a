//! The system calls that neither aya nor the standard library offers.
//!
//! Invariant: every structure passed to the kernel has the size and layout that the call's documentation gives.
//! It lives on the stack for the whole call, and is read only after the call succeeded. Descriptors that the
//! kernel returns are owned by nobody else.

#[cfg(test)]
pub(crate) mod driver;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// `BPF_LINK_CREATE` of `enum bpf_cmd` in linux/bpf.h.
const BPF_LINK_CREATE: libc::c_int = 28;
/// `BPF_XDP` of `enum bpf_attach_type` in linux/bpf.h.
const BPF_XDP: u32 = 37;
/// linux/ethtool.h.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_GRXFH: u32 = 0x29;
/// The bit of the Toeplitz hash among the kernel's hash functions.
const ETH_RSS_HASH_TOP: u8 = 1;
/// `RXH_IP_SRC`, `RXH_IP_DST`, `RXH_L4_B_0_1` and `RXH_L4_B_2_3`.
const RXH_ADDRESSES_AND_PORTS: u64 = 0xf0;
pub(crate) const TCP_V4_FLOW: u32 = 1;
pub(crate) const TCP_V6_FLOW: u32 = 5;
/// The set of strings that are features' names, of `enum ethtool_stringset`.
const ETH_SS_FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const STRING_BYTES: usize = 32;
/// Bytes before the strings in `struct ethtool_gstrings`.
const STRINGS_HEADER: usize = 12;

/// How the kernel is to run an XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XdpFlag {
    /// `XDP_FLAGS_SKB_MODE`.
    Generic = 1 << 1,
    /// `XDP_FLAGS_DRV_MODE`.
    Native = 1 << 2,
}

/// The index of an interface in the calling thread's network namespace.
pub(crate) fn interface_index(interface: &str) -> io::Result<u32> {
    let unknown = || io::Error::from_raw_os_error(libc::ENODEV);
    let name = CString::new(interface).map_err(|_| unknown())?;
    // SAFETY: `name` is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(unknown()),
        index => Ok(index),
    }
}

/// Attaches an XDP program by a link: the kernel detaches it when the last descriptor of the link
/// closes, so also when the process is killed. (aya's own attach turns to netlink after EINVAL,
/// and what netlink attached stays.)
pub(crate) fn attach_xdp(
    program: BorrowedFd<'_>,
    interface_index: u32,
    flag: XdpFlag,
) -> io::Result<OwnedFd> {
    /// The beginning of the `link_create` member of `union bpf_attr`; the kernel takes the rest
    /// as zero.
    #[repr(C)]
    struct LinkCreate {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let attributes = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: interface_index,
        attach_type: BPF_XDP,
        flags: flag as u32,
    };
    // SAFETY: the kernel reads `size_of::<LinkCreate>()` bytes of `attributes`, which has no
    // padding, and writes none.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const attributes,
            size_of::<LinkCreate>() as libc::c_uint,
        )
    };
    let Ok(fd) = libc::c_int::try_from(result) else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct ethtool_channels` of linux/ethtool.h: how many queues an interface has and may have.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    pub(crate) rx: u32,
    tx: u32,
    other: u32,
    pub(crate) combined: u32,
}

/// Asks the driver for its queues (`ETHTOOL_GCHANNELS`), in the thread's network namespace.
pub(crate) fn channels(interface: &str) -> io::Result<Channels> {
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: for this command the kernel reads and writes one `ethtool_channels`.
    unsafe { ethtool(interface, (&raw mut channels).cast()) }?;
    Ok(channels)
}

/// The hash by which an interface chooses RX queues.
#[derive(Debug)]
pub(crate) struct RxHash {
    /// Of the Toeplitz hash.
    pub(crate) key: Vec<u8>,
    /// Queues, by the hash.
    pub(crate) table: Vec<u32>,
}

/// Bytes of `struct ethtool_rxfh` before its table: command, context, sizes of table and key, function, and the rest.
const RXFH_HEADER: usize = 24;
/// More entries and bytes than any driver has.
const RXFH_MOST: u32 = 1 << 16;

/// Asks the driver for its hash (`ETHTOOL_GRSSH`), in the thread's network namespace.
pub(crate) fn rx_hash(interface: &str) -> io::Result<RxHash> {
    let unusable = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let word = |bytes: &[u8], at: usize| {
        let word = bytes
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        word.map_or(0, u32::from_ne_bytes)
    };
    let mut header = vec![0; RXFH_HEADER];
    header[..4].copy_from_slice(&ETHTOOL_GRSSH.to_ne_bytes());
    // SAFETY: asked with room for no entry and no byte of a key, the kernel writes how many there are.
    unsafe { ethtool(interface, header.as_mut_ptr().cast()) }?;
    let (entries, key) = (word(&header, 8), word(&header, 12));
    if entries > RXFH_MOST || key > RXFH_MOST {
        return Err(unusable());
    }
    let table_end = RXFH_HEADER + 4 * entries as usize;
    let mut all = vec![0; table_end + key as usize];
    all[..4].copy_from_slice(&ETHTOOL_GRSSH.to_ne_bytes());
    all[8..12].copy_from_slice(&entries.to_ne_bytes());
    all[12..16].copy_from_slice(&key.to_ne_bytes());
    // SAFETY: the kernel writes as many entries and bytes as there is room for, or refuses when the driver has others by
    // now.
    unsafe { ethtool(interface, all.as_mut_ptr().cast()) }?;
    // One function, Toeplitz's, of the packet as it is.
    if all[16] != ETH_RSS_HASH_TOP || all[17] != 0 {
        return Err(unusable());
    }
    let table = all[RXFH_HEADER..table_end].chunks(4);
    Ok(RxHash {
        table: table.map(|entry| word(entry, 0)).collect(),
        key: all[table_end..].to_vec(),
    })
}

/// Whether the ports of a kind of flow are hashed, beside its addresses (`ETHTOOL_GRXFH`).
pub(crate) fn hashes_ports(interface: &str, flow: u32) -> io::Result<bool> {
    /// `struct ethtool_rxnfc`, of which the kernel uses the first three for this. The rest is longer than its own.
    #[repr(C)]
    struct Classification {
        command: u32,
        flow: u32,
        fields: u64,
        rest: [u8; 512],
    }
    let mut asked = Classification {
        command: ETHTOOL_GRXFH,
        flow,
        fields: 0,
        rest: [0; 512],
    };
    // SAFETY: for this command the kernel reads and writes no more than one `ethtool_rxnfc` without rules.
    unsafe { ethtool(interface, (&raw mut asked).cast()) }?;
    Ok(asked.fields == RXH_ADDRESSES_AND_PORTS)
}

/// 32 features, a bit for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeatureWord {
    /// Those that may be changed.
    pub(crate) available: u32,
    pub(crate) active: u32,
}

/// The names of all features that the kernel knows, whatever the interface has (`ETHTOOL_GSTRINGS`).
pub(crate) fn feature_names(interface: &str) -> io::Result<Vec<String>> {
    /// `struct ethtool_sset_info` for one set.
    #[repr(C)]
    struct SetInfo {
        command: u32,
        reserved: u32,
        mask: u64,
        count: u32,
    }
    let mut info = SetInfo {
        command: ETHTOOL_GSSET_INFO,
        reserved: 0,
        mask: 1 << ETH_SS_FEATURES,
        count: 0,
    };
    // SAFETY: for one set the kernel reads and writes one `ethtool_sset_info` with one count.
    unsafe { ethtool(interface, (&raw mut info).cast()) }?;
    if info.mask == 0 {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // `struct ethtool_gstrings`: command, set and number, then as many strings.
    let mut strings = vec![0; STRINGS_HEADER + info.count as usize * STRING_BYTES];
    strings[..8].copy_from_slice(
        [ETHTOOL_GSTRINGS, ETH_SS_FEATURES]
            .map(u32::to_ne_bytes)
            .as_flattened(),
    );
    // SAFETY: the kernel writes a header and as many strings as it has just said, a number that it was
    // built with.
    unsafe { ethtool(interface, strings.as_mut_ptr().cast()) }?;
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    };
    let names = strings[STRINGS_HEADER..].chunks(STRING_BYTES);
    Ok(names.map(name).collect())
}

/// The first `count` features of an interface (`ETHTOOL_GFEATURES`), in the order of their names.
pub(crate) fn features(interface: &str, count: usize) -> io::Result<Vec<FeatureWord>> {
    let blocks = count.div_ceil(32);
    // `struct ethtool_gfeatures`: command and number of blocks, then these.
    let mut words = vec![0_u32; 2 + 4 * blocks];
    words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
    // SAFETY: the kernel writes the header and no more blocks than the header says.
    unsafe { ethtool(interface, words.as_mut_ptr().cast()) }?;
    // `struct ethtool_get_features_block`: available, requested, active, never changed.
    let (blocks, _) = words[2..].as_chunks();
    let word = |&[available, _, active, _]: &[u32; 4]| FeatureWord { available, active };
    Ok(blocks.iter().map(word).collect())
}

/// Makes one request of ethtool's for an interface of the thread's network namespace.
///
/// # Safety
///
/// `data` is a structure as the command in its first four bytes has it, which the kernel may read and write.
unsafe fn ethtool(interface: &str, data: *mut libc::c_char) -> io::Result<()> {
    #[cfg(test)]
    // SAFETY: the caller's.
    if let Some(answer) = unsafe { driver::answer(interface, data) } {
        return answer;
    }
    // SAFETY: `ifreq` is plain old data: all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    // The kernel wants a zero after the name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = data;
    let socket = datagram_socket()?;
    // SAFETY: for SIOCETHTOOL the kernel reads and writes one `ifreq` and the structure that it points to;
    // the caller vouches for that one.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn datagram_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are involved.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The memory of a BPF array, which programs read while we write: by bytes, each of them whole.
#[derive(Debug)]
pub(crate) struct SharedBytes {
    start: NonNull<AtomicU8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and is only accessed atomically.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Maps the first `len` bytes of a map that was made with `BPF_F_MMAPABLE`. The kernel refuses
    /// more than there are.
    pub(crate) fn map(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at a place of the kernel's choice, touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Changes one byte as `change` says, if it does; beyond the last nothing. Several may do so at once.
    pub(crate) fn change(&self, at: usize, change: impl FnMut(u8) -> Option<u8>) {
        if let Some(byte) = self.at(at) {
            let _ = byte.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        }
    }

    fn at(&self, at: usize) -> Option<&AtomicU8> {
        // SAFETY: it is within the mapping, which lasts as long as `self`; an array's memory can't
        // become shorter, and all our accesses are atomic.
        (at < self.len).then(|| unsafe { self.start.add(at).as_ref() })
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and nobody has a reference into it that outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
