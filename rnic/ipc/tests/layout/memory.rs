//! The rings with an entry of each kind, word by word, and the numbers that stand in them.

use std::sync::Arc;

use rnic_ipc::control::Access;
use rnic_ipc::id::QpNum;
use rnic_ipc::ring::{CqMemory, DoorbellConsumer, DoorbellProducer, QpMemory, SrqMemory};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::{
    Completion, Sge, WC_SOLICITED, WC_TRACKED, WC_WITH_IMMEDIATE, WC_WITH_INVALIDATE, WR_FENCE,
    WR_INLINE, WR_ONE_STREAM, WR_SIGNALED, WR_SOLICITED, WR_TRACKED, WcStatus, WorkSlot, WrOpcode,
};

pub fn lines() -> Vec<String> {
    [
        numbers(),
        work_queues(),
        shared_receives(),
        completions(),
        doorbells(),
    ]
    .concat()
}

fn numbers() -> Vec<String> {
    let opcode = |opcode: WrOpcode| {
        let places = opcode.operand_places();
        format!("WrOpcode {opcode:?}: {}, places {places}", opcode as u8)
    };
    let status = |status: WcStatus| format!("WcStatus {status:?}: {}", status as u8);
    let opcodes = (0..=u8::MAX).filter_map(WrOpcode::from_u8).map(opcode);
    let statuses = (0..=u8::MAX).filter_map(WcStatus::from_u8).map(status);
    let mut lines: Vec<_> = opcodes.chain(statuses).collect();
    for (name, flag) in [
        ("WR_SIGNALED", u16::from(WR_SIGNALED)),
        ("WR_SOLICITED", WR_SOLICITED.into()),
        ("WR_INLINE", WR_INLINE.into()),
        ("WR_ONE_STREAM", WR_ONE_STREAM.into()),
        ("WR_FENCE", WR_FENCE.into()),
        ("WR_TRACKED", WR_TRACKED.into()),
        ("WC_WITH_INVALIDATE", WC_WITH_INVALIDATE),
        ("WC_SOLICITED", WC_SOLICITED),
        ("WC_WITH_IMMEDIATE", WC_WITH_IMMEDIATE),
        ("WC_TRACKED", WC_TRACKED),
    ] {
        lines.push(format!("{name}: {flag}"));
    }
    for bit in 0..8 {
        lines.push(format!(
            "Access {:#04x}: {:?}",
            1 << bit,
            Access::from_bits(1 << bit)
        ));
    }
    lines
}

/// Each integer of an entry has its own bytes, so that two that changed places are seen.
fn slot(opcode: WrOpcode) -> WorkSlot {
    WorkSlot {
        wr_id: 0x0101_0101_0101_0101,
        remote_addr: 0x0202_0202_0202_0202,
        rkey: 0x0303_0303,
        opcode: opcode as u8,
        flags: 0x04,
        ..WorkSlot::default()
    }
}

fn elements<const N: usize>() -> [Sge; N] {
    std::array::from_fn(|index| Sge {
        addr: 0x1000 + index as u64,
        length: 0x2000 + index as u32,
        lkey: 0x3000 + index as u32,
    })
}

const OPERANDS: [u64; 4] = [0x51, 0x52, 0x53, 0x54];

fn work_queues() -> Vec<String> {
    let layout = QpMemory::layout(8, 2).expect("powers of two");
    let memory = private(layout.size);
    let _engine = QpMemory::create_in(memory.clone(), &layout).expect("it fits");
    let (mut sq, mut rq) = QpMemory::attach(memory.clone(), &layout).expect("it was made");
    let room = "there is room";
    let compare = slot(WrOpcode::AtomicCompareSwap);
    sq.push_parts(&compare, &elements::<5>(), &OPERANDS)
        .expect(room);
    let immediate = slot(WrOpcode::WriteImmediate);
    sq.push_inline(&immediate, b"0123456789abcdefg", &OPERANDS)
        .expect(room);
    QpMemory::shard(&memory).expect("it is there").set(3);
    sq.set_pending();
    let receive = slot(WrOpcode::Recv);
    rq.push_parts(&receive, &elements::<3>(), &OPERANDS)
        .expect(room);
    dump("work queues", &memory)
}

fn shared_receives() -> Vec<String> {
    let memory = private(SrqMemory::size(4).expect("a power of two"));
    let _engine = SrqMemory::create_in(memory.clone(), 4, 3).expect("it fits");
    let mut queue = SrqMemory::attach(memory.clone(), 4, 3).expect("it was made");
    for _ in 0..2 {
        let pushed = queue.push_parts(&slot(WrOpcode::Recv), &elements::<1>(), &OPERANDS);
        pushed.expect("there is room");
    }
    dump("shared receive queue", &memory)
}

fn completions() -> Vec<String> {
    let memory = private(CqMemory::size(1, 2).expect("a power of two"));
    let mut engine = CqMemory::create_in(&memory, 1, 2)
        .expect("it fits")
        .remove(1);
    let mut client = CqMemory::attach(&memory, 1, 2)
        .expect("it was made")
        .remove(1);
    let completion = Completion {
        wr_id: 0x0101_0101_0101_0101,
        qp: 0x0202_0202,
        byte_len: 0x0303_0303,
        status: 0x04,
        opcode: 0x05,
        flags: 0x0606,
        invalidated: 0x0707_0707,
        immediate: 0x0808_0808_0808_0808,
    };
    engine.push(&completion).expect("there is room");
    client.poll(&mut [Completion::default()]).expect("sound");
    client.arm(false);
    dump("completion queue", &memory)
}

fn doorbells() -> Vec<String> {
    let memory = private(DoorbellConsumer::memory_size(2, 2).expect("a power of two"));
    let mut engine = DoorbellConsumer::create_in(&memory, 2, 2)
        .expect("it fits")
        .remove(1);
    let mut client = DoorbellProducer::attach(&memory, 2, 2)
        .expect("it was made")
        .remove(1);
    client.ring(QpNum(0x0101_0101)).expect("there is room");
    engine.pop().expect("sound");
    assert!(engine.prepare_sleep());
    dump("doorbell ring", &memory)
}

fn private(len: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::private(len).expect("memory"))
}

/// The bytes that are not 0, in rows of 16.
fn dump(of: &str, memory: &SharedMemory) -> Vec<String> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes).expect("all of it");
    let rows = bytes.chunks(16).enumerate();
    rows.filter(|(_, row)| row.iter().any(|byte| *byte != 0))
        .map(|(number, row)| {
            let row: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{of} {:04x}: {}", number * 16, row.join(" "))
        })
        .collect()
}
