use super::*;

fn path(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("rnicd.sock")
}

#[test]
fn the_file_has_its_permissions_and_goes_with_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let file = SocketFile::bind(&path, 0o640, None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    drop(file);
    assert!(!path.exists());
}

#[test]
fn a_daemon_that_answers_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let _first = SocketFile::bind(&path, 0o600, None).unwrap();
    assert!(matches!(
        SocketFile::clear(&path),
        Err(SocketError::Taken { .. })
    ));
    assert!(matches!(
        SocketFile::bind(&path, 0o600, None),
        Err(SocketError::Taken { .. })
    ));
    assert!(path.exists());
}

#[test]
fn what_a_killed_daemon_left_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let listener = ChannelListener::bind(&path, 1).unwrap();
    drop(listener);
    assert!(path.exists());
    SocketFile::clear(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn an_ordinary_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        SocketFile::clear(&path),
        Err(SocketError::NotASocket { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn nothing_there_is_fine() {
    let directory = tempfile::tempdir().unwrap();
    SocketFile::clear(&path(&directory)).unwrap();
}

#[test]
fn the_directory_of_the_hosts_socket_is_made_once_and_for_everybody_to_enter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rnicd").join("rnicd.sock");
    make_directory(&path).unwrap();
    make_directory(&path).unwrap();
    let made = fs::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(made.mode() & 0o777, 0o755);
    let error = make_directory(Path::new("/nonexistent/rnicd/rnicd.sock")).unwrap_err();
    assert!(error.to_string().contains("can't be made"), "{error}");
}

#[test]
fn a_directory_that_is_not_there_is_a_named_error() {
    let error = SocketFile::bind(Path::new("/nonexistent/rnicd.sock"), 0o600, None).unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/rnicd.sock"),
        "{error}"
    );
    assert!(matches!(error, SocketError::Host { .. }));
}

#[test]
fn a_file_that_took_our_place_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = path(&directory);
    let file = SocketFile::bind(&path, 0o600, None).unwrap();
    fs::remove_file(&path).unwrap();
    let second = SocketFile::bind(&path, 0o600, None).unwrap();
    drop(file);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}
