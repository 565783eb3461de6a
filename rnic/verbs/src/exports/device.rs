//! Devices and contexts.

use std::ffi::{c_char, c_int, c_void};

use rustix::io::Errno;

use crate::abi::{
    COMPAT_PORT_ATTR, ibv_context, ibv_device, ibv_device_attr, ibv_gid, ibv_gid_entry,
    ibv_port_attr,
};
use crate::context::Context;
use crate::device::{self, Device};
use crate::ffi::{Fail, Object, Ptr, array_of, exports, free_array};
use crate::ops;
use crate::process::Process;

/// `IBV_FORK_UNNEEDED`: a child has no session of its parent's.
const FORK_UNNEEDED: c_int = 2;
/// `IBV_GID_TYPE_IB`: iWARP has no other.
const GID_TYPE_IB: u32 = 0;

exports! {
    "IBVERBS_1.1" ptr fn ibv_get_device_list(count: Ptr<c_int>) -> Ptr<Ptr<ibv_device>> {
        count.write(0);
        // Without a daemon there is no device, which is no error.
        let devices = Process::current().devices().unwrap_or_else(|fail| {
            log::warn!("ibv_get_device_list: {fail}");
            Vec::new()
        });
        let list: Vec<_> = devices.iter().map(|device| device.abi_ptr()).collect();
        let array = array_of(&list)?;
        count.write(c_int::try_from(list.len()).unwrap_or(c_int::MAX));
        Ok(array)
    }

    "IBVERBS_1.1" plain fn ibv_free_device_list(list: Ptr<Ptr<ibv_device>>) {
        free_array(list);
    }

    "IBVERBS_1.1" ptr fn ibv_get_device_name(device: Ptr<ibv_device>) -> Ptr<c_char> {
        Ok(device.object::<Device>()?.name())
    }

    "IBVERBS_1.1" plain fn ibv_get_device_guid(device: Ptr<ibv_device>) -> u64 {
        let session = device.object::<Device>().and_then(|device| Process::current().session(device.interface()));
        session.and_then(|session| session.info()).map_or(0, |info| device::guid(info.mac))
    }

    "IBVERBS_1.9" number fn ibv_get_device_index(_device: Ptr<ibv_device>) -> c_int {
        // The kernel does not know the device.
        Err(Errno::OPNOTSUPP.into())
    }

    "IBVERBS_1.1" ptr fn ibv_open_device(device: Ptr<ibv_device>) -> Ptr<ibv_context> {
        let interface = device.object::<Device>()?.interface();
        let session = Process::current().session(interface)?;
        Ok(ops::open(&session)?.hand_out())
    }

    "IBVERBS_1.1" cm fn ibv_close_device(context: Ptr<ibv_context>) -> c_int {
        Context::close(context)
    }

    "IBVERBS_1.1" verb fn ibv_query_device(context: Ptr<ibv_context>, attr: Ptr<ibv_device_attr>) -> c_int {
        let info = context.object::<Context>()?.session().info()?;
        attr.write(device::attributes(&info));
        Ok(())
    }

    "IBVERBS_1.1" verb fn ibv_query_port(context: Ptr<ibv_context>, port: u8, attr: Ptr<ibv_port_attr>) -> c_int {
        let info = context.object::<Context>()?.session().info()?;
        attr.write_start(&device::port_attributes(&info, port)?, COMPAT_PORT_ATTR);
        Ok(())
    }

    "IBVERBS_1.1" cm fn ibv_query_gid(context: Ptr<ibv_context>, port: u8, index: c_int, gid: Ptr<[u8; 16]>) -> c_int {
        let info = context.object::<Context>()?.session().info()?;
        let ibv_gid(bytes) = device::gid_at(&info, port, crate::ffi::element_count(index)?)?;
        gid.write(bytes);
        Ok(())
    }

    "IBVERBS_1.11" verb fn _ibv_query_gid_ex(
        context: Ptr<ibv_context>, port: u32, index: u32, entry: Ptr<ibv_gid_entry>, _flags: u32, size: usize,
    ) -> c_int {
        let info = context.object::<Context>()?.session().info()?;
        let port = u8::try_from(port).unwrap_or(u8::MAX);
        let gid = device::gid_at(&info, port, index as usize)?;
        entry.write_start(&gid_entry(gid, index, device::interface_index(&info.interface)), size);
        Ok(())
    }

    "IBVERBS_1.11" count fn _ibv_query_gid_table(
        context: Ptr<ibv_context>, entries: Ptr<ibv_gid_entry>, most: usize, _flags: u32, size: usize,
    ) -> isize {
        let info = context.object::<Context>()?.session().info()?;
        if size != size_of::<ibv_gid_entry>() {
            return Err(Fail::of(Errno::INVAL, format!("GID entries of {size} bytes")));
        }
        let found = info.addresses.len();
        if found > most {
            return Err(Fail::of(Errno::INVAL, format!("place for {most} GIDs, but there are {found}")));
        }
        let interface = device::interface_index(&info.interface);
        for (index, address) in info.addresses.iter().enumerate() {
            entries.at(index).write(gid_entry(device::gid(*address), index as u32, interface));
        }
        Ok(found as isize)
    }

    "IBVERBS_PRIVATE_34" cm fn ibv_query_gid_type(
        context: Ptr<ibv_context>, port: u8, index: u32, gid_type: Ptr<u32>,
    ) -> c_int {
        let info = context.object::<Context>()?.session().info()?;
        device::gid_at(&info, port, index as usize)?;
        gid_type.write(GID_TYPE_IB);
        Ok(())
    }

    "IBVERBS_1.1" cm fn ibv_query_pkey(_context: Ptr<ibv_context>, port: u8, index: c_int, pkey: Ptr<u16>) -> c_int {
        if port != 1 || index != 0 {
            return Err(Errno::INVAL.into());
        }
        pkey.write(u16::MAX);
        Ok(())
    }

    "IBVERBS_1.5" number fn ibv_get_pkey_index(_context: Ptr<ibv_context>, port: u8, pkey: u16) -> c_int {
        match (port, pkey) {
            (1, u16::MAX) => Ok(0),
            _ => Err(Errno::INVAL.into()),
        }
    }

    "IBVERBS_1.0" number fn ibv_read_sysfs_file(
        directory: Ptr<c_char>, file: Ptr<c_char>, to: Ptr<u8>, room: usize,
    ) -> c_int {
        let text = directory.text().zip(file.text());
        let text = text.and_then(|(directory, file)| device::sysfs_file(directory, file));
        let text = text.ok_or(Errno::NOENT)?.as_bytes();
        if text.len() >= room {
            return Err(Errno::NOSPC.into());
        }
        for (index, byte) in text.iter().chain(&[0]).enumerate() {
            to.at(index).write(*byte);
        }
        Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
    }

    "IBVERBS_1.0" ptr fn ibv_get_sysfs_path() -> Ptr<c_char> {
        Ok(crate::strings::c_text(c"/sys"))
    }

    "IBVERBS_1.1" verb fn ibv_fork_init() -> c_int {
        Ok(())
    }

    "IBVERBS_1.13" plain fn ibv_is_fork_initialized() -> c_int {
        FORK_UNNEEDED
    }

    "IBVERBS_1.1" verb fn ibv_dontfork_range(_base: Ptr<c_void>, _size: usize) -> c_int {
        Ok(())
    }

    "IBVERBS_1.1" verb fn ibv_dofork_range(_base: Ptr<c_void>, _size: usize) -> c_int {
        Ok(())
    }
}

fn gid_entry(gid: ibv_gid, gid_index: u32, ndev_ifindex: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid,
        gid_index,
        port_num: 1,
        gid_type: GID_TYPE_IB,
        ndev_ifindex,
    }
}
