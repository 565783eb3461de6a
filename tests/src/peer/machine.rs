//! QEMU's command line, and how the machine is reached: a directory that is shared, and a port on which it hears
//! the names of jobs.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{BOOT_LIMIT, PeerOptions};
use crate::lab::{Lab, Outlet, Process};
use crate::wait;

/// How long a machine may take with KVM before it counts as broken: where virtual machines nest,
/// `/dev/kvm` may be there and run nothing.
const KVM_LIMIT: Duration = Duration::from_secs(10);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What the machine shares with the test.
#[derive(Debug)]
pub(super) struct Share {
    directory: PathBuf,
    bell: Mutex<UnixStream>,
    jobs: AtomicU32,
}

impl Share {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A directory for one more job, which has its name.
    pub(super) fn job(&self) -> PathBuf {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.join("jobs").join(number.to_string());
        fs::create_dir_all(&directory).expect("the lab's directory can be written");
        directory
    }

    /// Tells the machine of a job.
    pub(super) fn ring(&self, job: &Path) -> std::io::Result<()> {
        let name = job.file_name().unwrap_or_default().to_string_lossy();
        let mut bell = self.bell.lock().expect("ringing does not panic");
        bell.write_all(format!("{name}\n").as_bytes())
    }
}

/// Boots the image, with KVM if that works on this machine.
pub(super) fn boot(
    lab: &Lab,
    outlet: &Outlet,
    image: &Path,
    options: &PeerOptions,
) -> (Process, Share) {
    let verdict = Verdict::of(image);
    if verdict.worth_trying() {
        match start(lab, outlet, image, options, Accelerator::Kvm, KVM_LIMIT) {
            Ok(started) => {
                verdict.note("kvm");
                return started;
            }
            Err(why) => eprintln!("the peer does not come up with KVM, so it is emulated: {why}"),
        }
        verdict.note("tcg");
    }
    start(lab, outlet, image, options, Accelerator::Tcg, BOOT_LIMIT)
        .unwrap_or_else(|why| panic!("the peer did not come up: {why}"))
}

/// Whether KVM worked since this machine was started, kept in the cache.
struct Verdict(PathBuf);

impl Verdict {
    fn of(image: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self(image.with_file_name(format!("accelerator-{}", boot.trim())))
    }

    fn worth_trying(&self) -> bool {
        let opens = || {
            fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/kvm")
                .is_ok()
        };
        opens() && fs::read_to_string(&self.0).map_or(true, |noted| noted != "tcg")
    }

    fn note(&self, accelerator: &str) {
        // A cache that can't be written costs the next boot another try.
        let _ = fs::write(&self.0, accelerator);
    }
}

#[derive(Clone, Copy)]
enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    /// Emulation is slow at the byte copies that a processor with ERMS would get, and at SMAP, so it
    /// gets one without them.
    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host,-arch-capabilities"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "Nehalem"],
        }
    }
}

/// QEMU's option for so many processors, with room for a second.
///
/// Before version 8.1, QEMU leaves memory barriers out when it emulates a machine that can have one processor only,
/// although its devices run in threads of their own. So the driver and the network card may miss each other's words
/// in shared memory. Then the machine sends nothing any more.
fn processors(number: u32) -> String {
    format!("{number},maxcpus={}", number.max(2))
}

fn start(
    lab: &Lab,
    outlet: &Outlet,
    image: &Path,
    options: &PeerOptions,
    accelerator: Accelerator,
    limit: Duration,
) -> Result<(Process, Share), String> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = lab.directory().join(format!("peer{number}"));
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let bell = directory.join("bell");
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let (v4, v6, mtu) = (outlet.v4, outlet.v6, outlet.mtu);
    let console = lab.directory().join(format!("peer{number}-console.log"));
    let process = outlet
        .namespace
        .command("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-machine", "q35", "-m", "1024"])
        .args(["-smp", &processors(options.processors)])
        .args(accelerator.arguments())
        .args(["-display", "none", "-serial"])
        .arg(format!("file:{}", shown(&console)))
        .args(["-kernel", &shown(&image.join("vmlinux"))])
        .args(["-initrd", &shown(&image.join("initramfs"))])
        .arg("-append")
        // On a busy host an emulated timer is too late for the kernel's test of it, which would panic.
        .arg(format!(
            "console=ttyS0 quiet panic=-1 no_timer_check nokaslr mitigations=off \
             peer.siw={} peer.addr4={v4}/24 peer.addr6={v6}/64 peer.mtu={mtu}",
            options.siw
        ))
        .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"])
        // QEMU waits for the connection: the port is never closed while the machine runs.
        .arg("-chardev")
        .arg(format!(
            "socket,id=bell,path={},server=on,wait=on",
            shown(&bell)
        ))
        .args(["-device", "virtserialport,chardev=bell,name=bell"])
        .arg("-fsdev")
        .arg(format!(
            "local,id=host,path={},security_model=none",
            shown(&directory)
        ))
        .args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"])
        .arg("-netdev")
        .arg(format!(
            "tap,id=net,ifname={},script=no,downscript=no,queues={}",
            outlet.tap, outlet.queues
        ))
        .arg("-device")
        .arg(network(outlet) + &options.network)
        .spawn();
    come_up(process, directory, &bell, limit)
}

/// The network card: without offloads, for XDP sees frames as they are on the tap.
fn network(outlet: &Outlet) -> String {
    let Outlet { mtu, queues, .. } = outlet;
    let mut device = format!("virtio-net-pci,netdev=net,host_mtu={mtu},csum=off,gso=off");
    if *queues > 1 {
        // An interrupt for each queue both ways, one for the control queue, one for changes.
        device += &format!(",mq=on,vectors={}", 2 * queues + 2);
    }
    for offload in ["csum", "tso4", "tso6", "ecn", "ufo"] {
        device += &format!(",guest_{offload}=off");
    }
    for offload in ["tso4", "tso6", "ecn", "ufo"] {
        device += &format!(",host_{offload}=off");
    }
    device
}

/// Waits until the machine has said that it is ready.
fn come_up(
    mut process: Process,
    directory: PathBuf,
    bell: &Path,
    limit: Duration,
) -> Result<(Process, Share), String> {
    let begin = Instant::now();
    let mut connected = None;
    while !directory.join("ready").exists() {
        if let Some(status) = process.status() {
            return Err(format!("QEMU ended: {status}: {}", process.stderr()));
        }
        if begin.elapsed() > limit {
            return Err(format!("it was not ready after {limit:?}"));
        }
        if connected.is_none() {
            connected = UnixStream::connect(bell).ok();
        }
        std::thread::sleep(wait::INTERVAL);
    }
    let bell = connected.ok_or("it is ready, but its port was never there")?;
    eprintln!(
        "the peer was up after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    let share = Share {
        directory,
        bell: Mutex::new(bell),
        jobs: AtomicU32::new(0),
    };
    Ok((process, share))
}
