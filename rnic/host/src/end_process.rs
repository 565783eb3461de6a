//! A thread without which the RNIC is half alive takes the process along when it panics.

/// Ends the process when it is dropped by a panic: with a message that names the thread, and by
/// SIGABRT.
pub struct EndProcess(pub &'static str);

impl Drop for EndProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = self.0;
            eprintln!("the RNIC's {thread} panicked, which is a bug: ending the process");
            std::process::abort();
        }
    }
}
