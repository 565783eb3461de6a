//! Devices as programs list them, and what is reported of them.

use std::ffi::{CStr, c_char, c_int};
use std::mem::offset_of;
use std::net::IpAddr;

use rnic::DeviceInfo;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::abi::{
    IBV_ATOMIC_HCA, IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_LINK_LAYER_ETHERNET, IBV_NODE_RNIC, IBV_PORT_ACTIVE,
    IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS, IBV_TRANSPORT_IWARP, PHYS_STATE_DISABLED,
    PHYS_STATE_LINK_UP, ibv_device, ibv_device_attr, ibv_gid, ibv_port_attr,
};
use crate::ffi::{Fail, Outcome, Ptr, Shared, field, object, zeroable};
use crate::session::Session;

zeroable!(ibv_device, ibv_device_attr, ibv_port_attr);

/// What a connection may have outstanding of RDMA Reads, at most, either way: what an
/// `rdma_conn_param` can say, rounded down.
pub(crate) const MAX_READS: u8 = 128;

/// How many completion vectors there are: the daemon serves all queues of an interface in one thread.
pub(crate) const COMPLETION_VECTORS: u32 = 1;

/// What a device of software without a vendor has in place of the vendor's number, as `rxe` does. 0 would be
/// somebody's (IEEE OUI 00-00-00).
const NO_VENDOR: u32 = 0xff_ffff;

/// The greatest message: what a Send or Write may be long (RFC 5040 section 5.1, RFC 5041 section 5).
const MAX_MESSAGE: u32 = u32::MAX;

const PREFIX: &str = "rnic_";
/// Leaves enough of a name's 63 characters for an interface's.
const PREFIX_MAX: usize = 40;

#[repr(C)]
pub(crate) struct Device {
    abi: Shared<ibv_device>,
    /// Providers' libraries ask what is behind the struct in their own devices, to find out whether this
    /// is one. It is none.
    not_a_provider: [usize; 32],
    interface: String,
}

object!(Device: ibv_device => offset_of!(Device, abi));

impl Device {
    pub(crate) fn new(prefix: &str, interface: &str) -> Self {
        let name = format!("{prefix}{interface}");
        let abi = Shared::zeroed(|abi: &mut ibv_device| {
            abi.node_type = IBV_NODE_RNIC;
            abi.transport_type = IBV_TRANSPORT_IWARP;
            put_text(&mut abi.name, &name);
            put_text(&mut abi.dev_name, &name);
            put_text(
                &mut abi.dev_path,
                &format!("/sys/class/infiniband_verbs/{name}"),
            );
            put_text(
                &mut abi.ibdev_path,
                &format!("/sys/class/infiniband/{name}"),
            );
        });
        Self {
            abi,
            not_a_provider: [0; 32],
            interface: interface.to_owned(),
        }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// Where the name begins, for as long as the process lives.
    pub(crate) fn name(&self) -> Ptr<c_char> {
        field!(self.abi, name).place().cast()
    }
}

/// What names of devices begin with, for programs that look for others (`siw*`): `RNIC_DEVICE_PREFIX`.
pub(crate) fn name_prefix() -> String {
    let Ok(wanted) = std::env::var("RNIC_DEVICE_PREFIX") else {
        return PREFIX.to_owned();
    };
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match wanted.len() <= PREFIX_MAX && wanted.chars().all(is_fit) {
        true => wanted,
        false => {
            log::warn!(
                "RNIC_DEVICE_PREFIX is {wanted:?}, and may have up to {PREFIX_MAX} letters, digits, `_` and `-`: \
                 devices are called {PREFIX}..."
            );
            PREFIX.to_owned()
        }
    }
}

fn put_text(place: &mut [c_char], text: &str) {
    let room = place.len() - 1;
    for (to, from) in place.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// Why a queue was not made. What the device never has is not a shortage of memory.
pub(crate) fn refused_size(
    session: &Session,
    error: rnic::Error,
    is_above: impl FnOnce(&DeviceInfo) -> bool,
) -> Fail {
    match session.info().is_ok_and(|info| is_above(&info)) {
        true => Fail::of(Errno::INVAL, error.to_string()),
        false => Fail::from(error),
    }
}

/// The EUI-64 of an Ethernet address (RFC 4291 appendix A), as a number whose bytes in memory are in
/// network order.
pub(crate) fn guid(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The GID of an address: itself, or IPv4-mapped.
pub(crate) fn gid(address: IpAddr) -> ibv_gid {
    ibv_gid(match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    })
}

/// The address of a GID.
pub(crate) fn address(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from(bytes).to_canonical()
}

pub(crate) fn gid_at(info: &DeviceInfo, port: u8, index: usize) -> Outcome<ibv_gid> {
    check_port(port)?;
    match info.addresses.get(index) {
        Some(address) => Ok(gid(*address)),
        None => Err(Errno::INVAL.into()),
    }
}

/// The number of an interface in this process's network namespace; 0 where it has none of that name, as with a
/// daemon of another namespace, or with the loopback alone.
pub(crate) fn interface_index(name: &str) -> u32 {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .and_then(|socket| name_to_index(socket, name))
        .unwrap_or(0)
}

fn check_port(port: u8) -> Outcome<()> {
    match port {
        1 => Ok(()),
        _ => Err(Fail::of(
            Errno::INVAL,
            format!("port {port} of a device that has port 1"),
        )),
    }
}

fn int(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}

pub(crate) fn attributes(info: &DeviceInfo) -> ibv_device_attr {
    let limits = &info.limits;
    let mut attr: ibv_device_attr = crate::ffi::zeroed();
    put_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = guid(info.mac);
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = limits.registered_bytes;
    // Regions begin and end at any byte.
    attr.page_size_cap = u64::MAX << 12;
    attr.vendor_id = NO_VENDOR;
    attr.max_qp = int(limits.queue_pairs);
    attr.max_qp_wr = int(info.max_queue_depth);
    attr.device_cap_flags =
        IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_sge = int(info.max_sge);
    attr.max_sge_rd = int(info.max_sge);
    attr.max_cq = int(limits.completion_queues);
    attr.max_cqe = int(limits.cq_depth);
    // One limit for both.
    attr.max_mr = int(limits.regions);
    attr.max_mw = int(limits.regions);
    attr.max_pd = int(limits.protection_domains);
    attr.max_qp_rd_atom = MAX_READS.into();
    attr.max_qp_init_rd_atom = MAX_READS.into();
    attr.max_res_rd_atom = int(limits.queue_pairs).saturating_mul(MAX_READS.into());
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_srq = int(limits.shared_receive_queues);
    attr.max_srq_wr = int(info.max_queue_depth);
    attr.max_srq_sge = int(info.max_sge);
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    attr
}

pub(crate) fn port_attributes(info: &DeviceInfo, port: u8) -> Outcome<ibv_port_attr> {
    check_port(port)?;
    let mut attr: ibv_port_attr = crate::ffi::zeroed();
    (attr.state, attr.phys_state) = match info.link_up {
        true => (IBV_PORT_ACTIVE, PHYS_STATE_LINK_UP),
        false => (IBV_PORT_DOWN, PHYS_STATE_DISABLED),
    };
    attr.max_mtu = mtu(9000);
    attr.active_mtu = mtu(info.mtu);
    attr.gid_tbl_len = int(info.addresses.len());
    attr.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = MAX_MESSAGE;
    attr.pkey_tbl_len = 1;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    (attr.active_width, attr.active_speed) = width_and_speed(info.link_mbits);
    Ok(attr)
}

/// The least `enum ibv_port_width` and speed of its lanes that carry a link of so many Mbit/s. Width 1 is one
/// lane, 2 are four, 4 are eight. Speed, as `ibv_port_attr` has it, is 1 for 2.5 Gb/s, 2 for 5, 4 for 10, 32 for
/// 25, 64 for 50. A link whose
/// speed nobody knows is told as 10 Gb/s, since there is no number for that.
fn width_and_speed(mbits: u32) -> (u8, u8) {
    match mbits {
        1..=2_500 => (1, 1),
        0 | 2_501..=10_000 => (1, 4),
        10_001..=20_000 => (2, 2),
        20_001..=25_000 => (1, 32),
        25_001..=40_000 => (2, 4),
        40_001..=50_000 => (1, 64),
        50_001..=100_000 => (2, 32),
        100_001..=200_000 => (2, 64),
        _ => (4, 64),
    }
}

/// `enum ibv_mtu`: the greatest of its steps that the link's MTU has room for.
pub(crate) fn mtu(bytes: u32) -> c_int {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

/// A file of a device's sysfs directory, as far as programs ask for one.
pub(crate) fn sysfs_file(directory: &CStr, file: &CStr) -> Option<&'static str> {
    directory
        .to_str()
        .ok()?
        .strip_prefix("/sys/class/infiniband")?;
    Some(match file.to_str().ok()? {
        "node_type" => "4: RNIC",
        "fw_ver" => env!("CARGO_PKG_VERSION"),
        "board_id" | "hca_type" => "software RNIC",
        _ => return None,
    })
}
