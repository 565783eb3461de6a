//! Work requests and completions as they lie in shared memory.
//!
//! A work queue is a ring of 64-byte slots. A work request takes one slot, or several when it has
//! more scatter/gather elements than fit the first: slot 0 carries the header and two elements,
//! each further slot four more. An inline work request has its bytes in the places of elements,
//! [`INLINE_PER_SGE`] in each. Behind the elements or the bytes come the operands that some opcodes have,
//! two in the place of each element. All integers are in host order: both ends are on one machine.
//! Whoever reads a slot copies it once and then checks the copy.

/// Bytes of a work-queue slot.
pub const SLOT_SIZE: usize = 64;
/// Elements in a work request's first slot.
pub const SGES_IN_FIRST_SLOT: usize = 2;
/// Elements in each further slot.
pub const SGES_IN_NEXT_SLOT: usize = 4;
/// The most elements that the layout can carry.
pub const MAX_SGE: usize = 32;
/// Bytes of inline data that take the place of one element.
pub const INLINE_PER_SGE: usize = size_of::<Sge>();
/// The most bytes of inline data that the layout can carry.
pub const MAX_INLINE: usize = MAX_SGE * INLINE_PER_SGE;
/// The most places of elements, behind the elements, that a work request's operands take.
pub const OPERAND_PLACES: usize = 2;
/// The most places of elements that a work request takes, elements and operands.
pub const MAX_PLACES: usize = MAX_SGE + OPERAND_PLACES;

/// Places of elements that so many bytes of inline data take.
pub const fn sges_for_inline(bytes: usize) -> usize {
    bytes.div_ceil(INLINE_PER_SGE)
}

/// A piece of registered memory named by a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Tagged offset of the first byte (the address in the client, by convention).
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The region's STag.
    pub lkey: u32,
}

impl Sge {
    /// The element in whose place up to [`INLINE_PER_SGE`] bytes of inline data lie.
    pub(crate) fn from_inline(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(bytes.len().min(size_of::<u64>()));
        let word = |bytes: &[u8]| {
            let mut all = [0; size_of::<u64>()];
            all[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(all)
        };
        Self::from_words([word(first), word(second)])
    }

    /// As two words in shared memory.
    pub(crate) fn words(self) -> [u64; 2] {
        let [l0, l1, l2, l3] = self.length.to_ne_bytes();
        let [k0, k1, k2, k3] = self.lkey.to_ne_bytes();
        let rest = u64::from_ne_bytes([l0, l1, l2, l3, k0, k1, k2, k3]);
        [self.addr, rest]
    }

    /// From two words in shared memory.
    #[inline]
    pub(crate) fn from_words([addr, rest]: [u64; 2]) -> Self {
        let [l0, l1, l2, l3, k0, k1, k2, k3] = rest.to_ne_bytes();
        Self {
            addr,
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            lkey: u32::from_ne_bytes([k0, k1, k2, k3]),
        }
    }

    /// The bytes of inline data that lie in its place.
    pub(crate) fn to_inline(self) -> [u8; INLINE_PER_SGE] {
        let mut all = [0; INLINE_PER_SGE];
        all[..8].copy_from_slice(&self.addr.to_ne_bytes());
        all[8..12].copy_from_slice(&self.length.to_ne_bytes());
        all[12..].copy_from_slice(&self.lkey.to_ne_bytes());
        all
    }
}

/// A work request's first slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WorkSlot {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Write, Read and atomics: tagged offset of the remote memory. [`WrOpcode::BindWindow`] tells what
    /// it is there.
    pub remote_addr: u64,
    /// Write, Read and atomics: the remote STag. Send with Invalidate and Local Invalidate: the STag to
    /// invalidate. Bind: the window's.
    pub rkey: u32,
    /// A [`WrOpcode`].
    pub opcode: u8,
    /// [`WR_SIGNALED`], [`WR_SOLICITED`], [`WR_INLINE`], [`WR_ONE_STREAM`], [`WR_FENCE`], [`WR_TRACKED`].
    pub flags: u8,
    /// Places of elements that are taken: by elements or by inline data, at most [`MAX_SGE`], and by
    /// the operands behind them, at most [`OPERAND_PLACES`].
    pub num_sge: u16,
    /// Bytes of inline data, at most [`MAX_INLINE`].
    pub inline_len: u32,
    /// Zero.
    pub reserved: u32,
    /// The first elements.
    pub sge: [Sge; SGES_IN_FIRST_SLOT],
}

/// Make a completion also on success.
pub const WR_SIGNALED: u8 = 1;
/// Send and Immediate Data: raise the peer's solicited event (RFC 5040 section 4.3, RFC 7306
/// section 6).
pub const WR_SOLICITED: u8 = 2;
/// Send and Write: the work request carries its bytes itself and names no memory.
pub const WR_INLINE: u8 = 4;

/// Fast registration: only the stream of the queue pair that does it may use the region.
pub const WR_ONE_STREAM: u8 = 8;

/// Begin only when the Reads and Atomic Operations that were posted before have their answers.
pub const WR_FENCE: u8 = 16;

/// The client's library numbered this work itself, apart from the program's numbers. It comes back as
/// [`WC_TRACKED`], and means nothing to the RNIC.
pub const WR_TRACKED: u8 = 32;

/// Names whose numbers stand in shared memory, each written once and read both ways.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            /// What has this number, if there is something.
            pub const fn from_u8(raw: u8) -> Option<Self> {
                Some(match raw {
                    $($number => Self::$variant,)*
                    _ => return None,
                })
            }
        }
    };
}

numbered! {
    /// What a work request does.
    pub enum WrOpcode {
        /// Send (receive queue: take a Send).
        Send = 0,
        /// RDMA Write.
        Write = 1,
        /// RDMA Read.
        Read = 2,
        SendInvalidate = 3,
        /// A receive.
        Recv = 4,
        /// Immediate Data (RFC 7306 section 6). Operand: the data.
        Immediate = 5,
        /// RDMA Write, then Immediate Data. Operand: the data.
        WriteImmediate = 6,
        /// FetchAdd (RFC 7306 section 5.1.1). Operands: add data, add mask. One element of 8 bytes
        /// takes the original value, in host order.
        AtomicFetchAdd = 7,
        /// CmpSwap (RFC 7306 section 5.1.2). Operands: swap data, swap mask, compare data, compare
        /// mask. The element is as for FetchAdd.
        AtomicCompareSwap = 8,
        /// Ends the rights of an STag, `rkey`, when what was posted before is done.
        LocalInvalidate = 9,
        /// Binds a memory window when what was posted before is done. `rkey`: the window's STag with
        /// its new key; `remote_addr`: tagged offset of the first byte in the region and in the
        /// window. Operands: its length, then the region's STag and, 32 bits higher, its rights
        /// ([`crate::control::Access::bits`]). Without a byte it ends the binding of a window of
        /// type 1.
        BindWindow = 10,
        /// Registers a region that is not valid when what was posted before is done. The parts are as
        /// for a window; a region with memory of its own names itself as the one that it is taken
        /// from.
        FastRegister = 11,
        /// Send with Immediate Data: `rkey`. Only of a queue pair that is joined by number.
        SendImmediate = 12,
    }
}

/// What a work request is about beside memory; how many of them mean something is the opcode's.
pub type Operands = [u64; 4];

impl WrOpcode {
    /// Whether it is done here and sends nothing.
    pub const fn is_local(self) -> bool {
        matches!(
            self,
            Self::LocalInvalidate | Self::BindWindow | Self::FastRegister
        )
    }

    /// Places of elements that its operands take: two operands fit one.
    pub const fn operand_places(self) -> usize {
        match self {
            Self::Immediate
            | Self::WriteImmediate
            | Self::AtomicFetchAdd
            | Self::BindWindow
            | Self::FastRegister => 1,
            Self::AtomicCompareSwap => 2,
            _ => 0,
        }
    }
}

/// An entry of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// From the work request.
    pub wr_id: u64,
    /// The queue pair's number.
    pub qp: u32,
    /// Receive, Read and atomics: bytes placed.
    pub byte_len: u32,
    /// A [`WcStatus`].
    pub status: u8,
    /// The [`WrOpcode`] that completed.
    pub opcode: u8,
    /// [`WC_WITH_INVALIDATE`], [`WC_SOLICITED`], [`WC_WITH_IMMEDIATE`], [`WC_TRACKED`].
    pub flags: u16,
    /// Receive of a Send with Invalidate: the STag that was invalidated.
    pub invalidated: u32,
    /// Receive of Immediate Data: the data, the first byte on the wire the most significant. Of a Send with Immediate
    /// Data: [`immediate_of_send`].
    pub immediate: u64,
}

/// The Send carried an STag that is now invalid.
pub const WC_WITH_INVALIDATE: u16 = 1;
/// The Send or Immediate Data asked for a solicited event.
pub const WC_SOLICITED: u16 = 2;
/// The receive took Immediate Data (RFC 7306 section 6), or a Send with some.
pub const WC_WITH_IMMEDIATE: u16 = 4;

/// The 32 bits that a Send has, as those 64 of which the others are all 1.
pub const fn immediate_of_send(data: u32) -> u64 {
    (data as u64) << 32 | u32::MAX as u64
}
/// The work request had [`WR_TRACKED`].
pub const WC_TRACKED: u16 = WR_TRACKED as u16;

impl WorkSlot {
    /// The flags that its completion has whatever becomes of it.
    #[inline]
    pub fn completion_flags(&self) -> u16 {
        u16::from(self.flags & WR_TRACKED)
    }
}

numbered! {
    /// How a work request ended.
    #[non_exhaustive]
    pub enum WcStatus {
        /// Done.
        Success = 0,
        /// The receive's buffer was shorter than the Send.
        LocalLength = 1,
        /// The work request itself is impossible: unknown opcode, too many elements, wrong state.
        LocalQpOperation = 2,
        /// An element names memory it may not use: STag, PD, right or bounds.
        LocalProtection = 3,
        /// The queue pair went to Error before this was done.
        WorkRequestFlushed = 4,
        /// The peer refused the access with a Terminate.
        RemoteAccess = 5,
        /// The peer ended the stream with a Terminate for another reason.
        RemoteOperation = 6,
        /// The peer of a queue pair that is joined by number is gone.
        RetryExceeded = 7,
    }
}

const _: () = assert!(size_of::<WorkSlot>() == SLOT_SIZE);
const _: () = assert!(size_of::<Sge>() * SGES_IN_NEXT_SLOT == SLOT_SIZE);
const _: () = assert!(size_of::<Completion>() == 32);
