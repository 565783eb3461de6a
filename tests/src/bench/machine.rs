//! What a benchmark ran on.

use serde_json::{Value, json};

/// The machine, and when.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its processor, as Linux names it.
    pub processor: String,
    pub cores: usize,
    /// Linux's version.
    pub kernel: String,
    /// The day, in UTC.
    pub date: String,
}

impl Machine {
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let now = std::process::Command::new("date")
            .args(["-u", "+%F"])
            .output();
        let now = now.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        Self {
            processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            date: now.unwrap_or_default(),
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "kernel": self.kernel,
            "date": self.date,
        })
    }
}
