use std::thread::Builder;

use rnic_ipc::threads;

use super::program;

/// A program gives itself any name (prctl(2), PR_SET_NAME); an operator's terminal sees only letters.
#[test]
fn a_program_s_name_is_printable_and_short() {
    let name = program(std::process::id());
    assert!(!name.is_empty() && name.len() <= super::PROGRAM_MAX);
    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    assert_eq!(program(0), "");
}

#[test]
fn a_program_that_names_itself_to_harm_a_terminal_does_not() {
    let named = Builder::new().name("\u{1b}]0;\"x\\".to_owned());
    let named = threads::spawn(named, || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        program(u32::try_from(thread).unwrap())
    });
    assert_eq!(named.unwrap().join().unwrap(), "?]0;?x?");
}
