//! Which ports frames leave by. The interface's queues may be of several devices, the members of a bond, of which some
//! carry nothing at present.

use rnic_xsk::Port;

use crate::command::CommandError;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Tx {
    /// Has frames leave by those of the interface's ports that `carry`, in their order. What the others have of TCP's
    /// is copied, so that it can be sent again: they may keep their frames for as long as they carry nothing.
    pub(in crate::shard) fn set_exits<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        carry: &[bool],
    ) -> Result<(), CommandError> {
        let ports = dp.interface_ports;
        if carry.len() != ports {
            let found = carry.len();
            return Err(CommandError::Invalid(format!(
                "{ports} ports asked, of {found} is said whether they carry frames"
            )));
        }
        self.link.leave_by(carry);
        self.take_completed(dp);
        for index in 0..dp.frames.umem.frames() {
            let Some(owner) = self.link.owner(index) else {
                continue;
            };
            let pool = &mut dp.frames.pool;
            let silent = dp.ports.iter().zip(carry).filter(|(_, carries)| !**carries);
            let mut copies = silent.filter_map(|(port, _)| port.copy_transmitted(index, pool));
            // Without a free frame it waits for its own.
            if let Some(copy) = copies.next() {
                drop(copies);
                self.link.disown(index);
                dp.give_back(copy, Some(owner));
            }
        }
        Ok(())
    }
}
