//! `forebay top` with and without a terminal.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A pool with a job that creates and removes directories until it is dropped.
struct Busy {
    directory: tempfile::TempDir,
    run: Child,
}

const SCRIPT: &str = "#!/bin/sh
#DW create_persistent name=aaa capacity=16MiB type=scratch access_mode=striped
#DW jobdw capacity=32MiB type=scratch access_mode=striped
#DW stage_in type=file source=%d/input destination=$DW_JOB_STRIPED/input
touch %d/ready
while [ ! -e %d/go ]; do mkdir ${DW_JOB_STRIPED}d; rmdir ${DW_JOB_STRIPED}d; done
";

impl Busy {
    fn start() -> Busy {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("input"), "input\n").unwrap();
        let script = SCRIPT.replace("%d", directory.path().to_str().unwrap());
        fs::write(path("job.sh"), script).unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", "--pool", "pool", "--pool-size", "1GiB"])
            .args(["--job-id", "77", "job.sh"])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !path("ready").exists() {
            assert!(start.elapsed() < TIMEOUT);
            std::thread::sleep(Duration::from_millis(20));
        }
        Busy { directory, run }
    }

    fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = fs::write(self.directory.path().join("go"), "");
        let _ = self.run.wait();
    }
}

/// The number in the column of that name, in the row that begins with `first`; `None` for `-`.
fn number(screen: &str, heading: &str, first: &str, column: &str) -> Option<f64> {
    let mut lines = screen.lines().skip_while(|line| !line.starts_with(heading));
    let head = lines.next().unwrap_or_else(|| panic!("no {heading} in\n{screen}"));
    let row = lines
        .take_while(|line| !line.trim().is_empty())
        .find(|line| line.starts_with(first))
        .unwrap_or_else(|| panic!("no {first} below {heading} in\n{screen}"));
    let end = head.find(column).unwrap() + column.len();
    let cell: String = row.chars().take(end).collect();
    match cell.split_whitespace().last().unwrap() {
        "-" => None,
        word => {
            Some(word.replace(',', "").parse().unwrap_or_else(|_| panic!("`{word}` in\n{screen}")))
        }
    }
}

#[test]
fn top_without_terminal_prints_one_frame() {
    let busy = Busy::start();
    let frame = || {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["top", "--interval", "2", "--pool"])
            .arg(busy.pool())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let start = Instant::now();
    let mut text = frame();
    // The job has a rate when its host has reported twice.
    while number(&text, "INSTANCE", "77 ", "OPS/S").is_none() && start.elapsed() < TIMEOUT {
        text = frame();
    }
    assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains(&format!("process {}", busy.run.id())), "{text}");
    assert!(text.contains("pool embedded  [#-----"), "{text}");
    assert!(text.contains("48.0 MiB of 1.00 GiB in use"), "{text}");
    assert!(text.contains("sessions: 1 of jobs, 1 of persistent"), "{text}");
    assert!(number(&text, "STORE", "localhost", "REQUESTS/S") > Some(5.0), "{text}");
    assert!(number(&text, "STORE", "localhost", "LOG/S") > Some(5.0), "{text}");
    assert!(number(&text, "INSTANCE", "77 ", "OPS/S") > Some(5.0), "{text}");
    let stage = text.lines().find(|line| line.starts_with("77 ") && line.contains("in, line 4"));
    let stage = stage.unwrap_or_else(|| panic!("{text}"));
    assert!(stage.contains("1/1") && stage.ends_with("done"), "{text}");
}

/// A program under `script`'s pseudo terminal of 40 lines and 120 columns.
struct Screen {
    program: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
}

impl Screen {
    fn start(command: &str) -> Screen {
        let mut program = Command::new("script")
            .args(["-qefc", &format!("stty rows 40 cols 120; exec {command}")])
            .arg("/dev/null")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of util-linux is needed");
        let keys = program.stdin.take().unwrap();
        let mut stdout = program.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Screen { program, keys, output, parser: vt100::Parser::new(40, 120, 0) }
    }

    /// Waits until the screen contents fulfil `wanted`, and returns them.
    fn wait_for(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.parser.screen().contents();
            if wanted(&text) {
                return text;
            }
            assert!(start.elapsed() < TIMEOUT, "{text}");
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.parser.process(&bytes);
            }
        }
    }

    fn press(&mut self, key: &[u8]) {
        self.keys.write_all(key).unwrap();
        self.keys.flush().unwrap();
    }

    fn ends(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            while let Ok(bytes) = self.output.try_recv() {
                self.parser.process(&bytes);
            }
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(start.elapsed() < TIMEOUT);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Index of the instance row that begins with `first`.
fn place(screen: &str, first: &str) -> usize {
    let below = screen.lines().skip_while(|line| !line.starts_with("INSTANCE"));
    below
        .take_while(|line| !line.trim().is_empty())
        .position(|line| line.starts_with(first))
        .unwrap_or_else(|| panic!("no {first} in\n{screen}"))
}

#[test]
fn top_in_a_terminal_refreshes_sorts_and_quits() {
    let busy = Busy::start();
    let program = env!("CARGO_BIN_EXE_forebay");
    let pool = busy.pool();
    let top = format!("{program} top --interval 0.3 --pool {}", pool.display());
    let mut screen = Screen::start(&top);
    let rate = |screen: &str| number(screen, "STORE", "localhost", "REQUESTS/S");
    // The counters of the storage node and of the mount may be in different frames.
    let operations = |screen: &str| number(screen, "INSTANCE", "77 ", "OPS/S");
    let text = screen.wait_for(|text| {
        let is_drawn = text.contains("sort by: operations") && text.contains("STAGE OF");
        is_drawn && rate(text) > Some(5.0) && operations(text) > Some(5.0)
    });
    // By operations, then by use, then by name.
    assert!(place(&text, "77 ") < place(&text, "aaa "), "{text}");
    screen.press(b"s");
    screen.wait_for(|text| text.contains("sort by: used"));
    screen.press(b"s");
    let text = screen.wait_for(|text| text.contains("sort by: name"));
    assert!(place(&text, "77 ") < place(&text, "aaa "), "{text}");
    // The display refreshes: the rate changes.
    let before = rate(&text);
    screen.wait_for(|text| {
        text.contains("STORE") && rate(text).is_some_and(|rate| Some(rate) != before)
    });
    screen.press(b"q");
    assert_eq!(screen.ends(), 0);
    assert!(
        !screen.parser.screen().alternate_screen() && !screen.parser.screen().hide_cursor(),
        "the terminal is as before"
    );
}

#[test]
fn interrupted_top_restores_the_terminal() {
    let busy = Busy::start();
    let program = env!("CARGO_BIN_EXE_forebay");
    let mut screen = Screen::start(&format!("{program} top --pool {}", busy.pool().display()));
    screen.wait_for(|text| text.contains("INSTANCE"));
    screen.press(&[3]); // Ctrl-C
    assert_eq!(screen.ends(), 0);
    assert!(!screen.parser.screen().alternate_screen());
    let output = Command::new(program).args(["top", "--interval", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The state of a process in `/proc/PID/stat`; `None` if there is none.
fn state(process: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn top_exits_when_its_terminal_closes() {
    let busy = Busy::start();
    let program = env!("CARGO_BIN_EXE_forebay");
    let pool = busy.pool();
    let pool = pool.to_str().unwrap();
    let mut screen = Screen::start(&format!("{program} top --interval 0.3 --pool {pool}"));
    screen.wait_for(|text| text.contains("sort by: operations"));
    // `script` is the parent of the shell, which has become `top`.
    let script = screen.program.id();
    let children = fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap();
    let top = children.trim();
    assert!(state(top).is_some_and(|state| state != 'Z'), "top runs: `{children}`");
    // A killed `script` closes the terminal of its program without a signal.
    drop(screen);
    let start = Instant::now();
    while state(top).is_some_and(|state| state != 'Z') {
        assert!(start.elapsed() < TIMEOUT, "top runs without a terminal");
        std::thread::sleep(Duration::from_millis(50));
    }
}
