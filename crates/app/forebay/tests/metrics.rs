//! Metrics of a running job: the page is well-formed, and counters rise by the work done.

use crate::exposition;
use exposition::Page;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A job that waits for the test between its steps, with its metrics.
struct Job {
    child: Child,
    address: String,
    directory: tempfile::TempDir,
}

const SCRIPT: &str = "#!/bin/sh
#DW jobdw capacity=32MiB type=scratch access_mode=striped
#DW stage_in type=directory source=%d/input destination=$DW_JOB_STRIPED/input
#DW stage_out type=file source=$DW_JOB_STRIPED/result destination=%d/result
wait_for() { while [ ! -e $PWD/$1 ]; do sleep 0.02; done; }
touch $PWD/ready
wait_for first
for i in 1 2 3 4 5 6 7 8 9 10; do mkdir ${DW_JOB_STRIPED}d$i; done
head -c 1000000 /dev/zero >${DW_JOB_STRIPED}result
sync ${DW_JOB_STRIPED}result
ls ${DW_JOB_STRIPED}absent 2>/dev/null
touch $PWD/done
wait_for second
";

fn start() -> Job {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("input")).unwrap();
    for number in 0..5 {
        fs::write(path("input").join(number.to_string()), vec![1; 10_000]).unwrap();
    }
    let script = SCRIPT.replace("%d", directory.path().to_str().unwrap());
    fs::write(path("job.sh"), script).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["run", "--pool", "pool", "--pool-size", "1GiB"])
        .args(["--metrics", "127.0.0.1:0", "job.sh"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines
        .find_map(|line| {
            let line = line.unwrap();
            let rest = line.strip_prefix("forebay: metrics at http://")?;
            Some(rest.strip_suffix("/metrics").unwrap().to_owned())
        })
        .unwrap();
    // Later output must not block the process.
    std::thread::spawn(move || lines.count());
    Job { child, address, directory }
}

impl Job {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn wait_for(&self, name: &str) {
        let start = Instant::now();
        while !self.path(name).exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn page(&self) -> Page {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{text}");
        Page::read(body).unwrap_or_else(|error| panic!("{error}\n{body}"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for name in ["first", "second"] {
            let _ = fs::write(self.path(name), "");
        }
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_rise_by_the_work_of_the_job() {
    let mut job = start();
    job.wait_for("ready");
    let before = job.page();
    let get = |page: &Page, name: &str, labels: &[(&str, &str)]| page.get(name, labels);
    let way = [("host", "localhost"), ("direction", "in")];
    assert_eq!(get(&before, "forebay_staged_files_total", &way), 5.0);
    assert_eq!(get(&before, "forebay_staged_bytes_total", &way), 50_000.0);
    assert_eq!(get(&before, "forebay_stages_done_total", &way), 1.0);
    // Stage-ins are not read back by default.
    let read_back = "forebay_staged_read_back_bytes_total";
    assert_eq!(get(&before, read_back, &way), 0.0);
    let spent = |phase| {
        let labels = [way[0], way[1], ("phase", phase)];
        get(&before, "forebay_stage_phase_seconds_total", &labels)
    };
    assert!(spent("copying") > 0.0 && spent("syncing") > 0.0);
    assert_eq!(spent("reading_back"), 0.0);
    let running = [("direction", "in"), ("phase", "copying")];
    assert_eq!(get(&before, "forebay_stages_running", &running), 0.0);
    let pool = [("pool", "embedded")];
    assert_eq!(get(&before, "forebay_pool_size_bytes", &pool), (1u64 << 30) as f64);
    let free = get(&before, "forebay_pool_free_bytes", &pool);
    assert_eq!(free, ((1u64 << 30) - (32 << 20)) as f64);
    fs::write(job.path("first"), "").unwrap();
    job.wait_for("done");
    let after = job.page();
    let rise =
        |name: &str, labels: &[(&str, &str)]| after.get(name, labels) - before.get(name, labels);
    let of = |kind: &'static str| [("host", "localhost"), ("kind", kind)];
    let requests = "forebay_store_request_duration_seconds_count";
    assert_eq!(rise(requests, &of("mknod")), 10.0);
    assert_eq!(rise(requests, &of("create")), 1.0);
    // The mount has the object's descriptor and syncs it directly.
    assert_eq!(rise(requests, &of("sync_metadata")), 1.0);
    assert!(rise("forebay_store_request_duration_seconds_sum", &of("mknod")) > 0.0);
    assert!(rise("forebay_store_request_errors_total", &of("lookup")) >= 1.0);
    let host = [("host", "localhost")];
    assert!(rise("forebay_store_log_records_total", &host) >= 11.0);
    assert!(rise("forebay_store_log_sync_duration_seconds_count", &host) >= 1.0);
    assert!(rise("forebay_store_received_bytes_total", &host) > 0.0);
    let written = "forebay_mount_written_bytes_total";
    assert_eq!(after.only(written) - before.only(written), 1_000_000.0);
    let instance = after.only("forebay_instance_used_bytes");
    assert!((1_050_000.0..33_554_432.0).contains(&instance), "{instance}");
    assert_eq!(after.only("forebay_instance_capacity_bytes"), 33_554_432.0);
    fs::write(job.path("second"), "").unwrap();
    assert!(job.child.wait().unwrap().success());
    assert_eq!(fs::metadata(job.path("result")).unwrap().len(), 1_000_000);
    assert!(TcpStream::connect(&job.address).is_err(), "nobody listens");
}

#[test]
fn metrics_address_in_use_fails_before_the_job_starts() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("job.sh");
    fs::write(&script, "#!/bin/sh\ntouch ran\n").unwrap();
    let run = |address: &str| {
        Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", "--pool-size", "1GiB", "--metrics", address])
            .arg(&script)
            .env_remove("XDG_STATE_HOME")
            .current_dir(directory.path())
            .output()
            .unwrap()
    };
    let output = run(&taken.local_addr().unwrap().to_string());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("cannot serve metrics at 127.0.0.1:") && text.contains("in use"),
        "{text}"
    );
    assert!(!Path::new(&directory.path().join("ran")).exists());
    assert_eq!(run("nowhere").status.code(), Some(2));
}
