use super::{Opcode, SendKind, SendWord, VERSION, opcode, version};
use crate::Qn;

#[test]
fn every_opcode_of_figure_4_and_of_rfc_7306_figure_2_has_its_number() {
    let send = |word, solicited| Opcode::Send(SendKind { solicited, word });
    let (unused, invalidate) = (SendWord::Unused, SendWord::Invalidate);
    let opcodes = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        send(unused, false),
        send(invalidate, false),
        send(unused, true),
        send(invalidate, true),
        Opcode::Terminate,
        Opcode::Immediate { solicited: false },
        Opcode::Immediate { solicited: true },
        Opcode::AtomicRequest,
        Opcode::AtomicResponse,
        // Those of docs/extensions.md.
        send(SendWord::Immediate, false),
        send(SendWord::Immediate, true),
    ];
    for (number, opcode) in (0..).zip(opcodes) {
        assert_eq!(opcode.number(), number, "{opcode:?}");
        assert_eq!(Opcode::from_number(number), Some(opcode));
    }
    for number in 14..16 {
        assert_eq!(Opcode::from_number(number), None, "reserved");
    }
}

#[test]
fn the_version_is_01b_and_reserved_bits_are_ignored() {
    let send = Opcode::Send(SendKind::default());
    assert_eq!(send.control_byte(), 0x43);
    assert_eq!(version(0x43), VERSION);
    assert_eq!(opcode(0x43 | 0x30), Some(send));
    assert_eq!(version(0x83), 2);
}

/// RFC 7306 Figure 2: the opcodes of the extensions, as bytes on the wire.
#[test]
fn the_opcodes_of_the_extensions_are_those_of_the_registry() {
    let bytes = [
        (Opcode::Immediate { solicited: false }, 0x48),
        (Opcode::Immediate { solicited: true }, 0x49),
        (Opcode::AtomicRequest, 0x4a),
        (Opcode::AtomicResponse, 0x4b),
    ];
    for (opcode, byte) in bytes {
        assert_eq!(opcode.control_byte(), byte);
    }
}

#[test]
fn each_untagged_message_has_its_queue() {
    assert_eq!(Opcode::Send(SendKind::default()).queue(), Some(Qn(0)));
    assert_eq!(Opcode::ReadRequest.queue(), Some(Qn(1)));
    assert_eq!(Opcode::Terminate.queue(), Some(Qn(2)));
    for solicited in [false, true] {
        assert_eq!(Opcode::Immediate { solicited }.queue(), Some(Qn(0)));
    }
    assert_eq!(Opcode::AtomicRequest.queue(), Some(Qn(1)));
    assert_eq!(Opcode::AtomicResponse.queue(), Some(Qn(3)));
    assert_eq!(Opcode::Write.queue(), None);
    assert_eq!(Opcode::ReadResponse.queue(), None);
}
