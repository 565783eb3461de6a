use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::pipe::output::Output;

/// As under inetd: a write that blocked would hold the connection up.
#[test]
fn at_the_end_of_input_the_same_socket_still_does_not_block_as_output() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let number = ours.as_raw_fd().cast_unsigned();
    let blocks = || {
        !rustix::fs::fcntl_getfl(&ours)
            .unwrap()
            .contains(OFlags::NONBLOCK)
    };
    let mut input = Input::over(number, ours.as_fd()).unwrap();
    let mut output = Output::over(number, ours.as_fd()).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert_eq!(input.read(&mut [&mut [0; 10]]).unwrap(), 0);
    assert!(input.ended() && input.waits().is_none());
    assert!(!blocks());
    while output.write(&[&[0; 65_536]]).unwrap() > 0 {}
    assert!(output.waits().is_some());
    drop((input, output));
    assert!(blocks(), "others get it back as it was");
}
