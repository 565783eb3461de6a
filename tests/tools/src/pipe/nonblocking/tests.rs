use std::os::fd::AsRawFd;

use super::*;

/// Flags of the description that others share with us.
fn flags(fd: impl AsFd) -> OFlags {
    rustix::fs::fcntl_getfl(fd).unwrap()
}

fn open(fd: &impl AsFd, access: OFlags) -> NonBlocking {
    let fd = fd.as_fd();
    NonBlocking::open(fd.as_raw_fd().cast_unsigned(), fd, access).unwrap()
}

#[test]
fn a_pipe_does_not_block_us_and_stays_as_it_was_for_others() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let ours = open(&read, OFlags::RDONLY);
    let error = rustix::io::read(&ours, &mut [0; 10]).unwrap_err();
    assert_eq!(error, rustix::io::Errno::AGAIN);
    assert!(!flags(&read).contains(OFlags::NONBLOCK));

    let ours = open(&write, OFlags::WRONLY);
    while rustix::io::write(&ours, &[0; 65_536]).is_ok() {}
    assert!(!flags(&write).contains(OFlags::NONBLOCK));
}

#[test]
fn a_socket_is_put_back_at_the_end() {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let open = open(&ours, OFlags::RDONLY);
    assert!(flags(&ours).contains(OFlags::NONBLOCK));
    drop(open);
    assert!(!flags(&ours).contains(OFlags::NONBLOCK));
}

#[test]
fn a_file_keeps_its_place() {
    use std::io::{Read, Seek};
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"first second").unwrap();
    file.rewind().unwrap();
    file.read_exact(&mut [0; 6]).unwrap();
    let ours = open(&file, OFlags::RDONLY);
    let mut found = [0; 6];
    rustix::io::read(&ours, &mut found).unwrap();
    assert_eq!(&found, b"second");
}
