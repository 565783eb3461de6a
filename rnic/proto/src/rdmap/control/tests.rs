use super::{Opcode, SendKind, VERSION, opcode, version};
use crate::Qn;

#[test]
fn every_opcode_of_figure_4_has_its_number() {
    for number in 0..8 {
        assert_eq!(
            Opcode::from_number(number).map(Opcode::number),
            Some(number)
        );
    }
    for number in 8..16 {
        assert_eq!(Opcode::from_number(number), None, "reserved");
    }
}

#[test]
fn the_version_is_01b_and_reserved_bits_are_ignored() {
    let send = Opcode::Send(SendKind::default());
    assert_eq!(send.control_octet(), 0x43);
    assert_eq!(version(0x43), VERSION);
    assert_eq!(opcode(0x43 | 0x30), Some(send));
    assert_eq!(version(0x83), 2);
}

#[test]
fn each_untagged_message_has_its_queue() {
    assert_eq!(Opcode::Send(SendKind::default()).queue(), Some(Qn(0)));
    assert_eq!(Opcode::ReadRequest.queue(), Some(Qn(1)));
    assert_eq!(Opcode::Terminate.queue(), Some(Qn(2)));
    assert_eq!(Opcode::Write.queue(), None);
    assert_eq!(Opcode::ReadResponse.queue(), None);
}
