//! The calls of Slurm's plugin on a pool with 300 storage nodes and 64 compute nodes.
//!
//! The controller, the connections and the nodes' state machines are the real ones; fragments, mounts
//! and stages are done at once.

use crate::cluster;
use crate::simulated;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use cluster::{built_program, text_of, wait_until};
use forebay_daemon::{ControllerClient, Daemon, PoolConfig};
use simulated::SimulatedNodes;

const STORAGE_NODES: usize = 300;
const COMPUTE_NODES: usize = 64;
const KEY: &[u8] = b"the key of a large pool, for tests";
/// Limit on the time of a call, in seconds.
const LIMIT: f64 = 1.0;
/// Jobs that are run; the fastest call of each function counts, as the machine may have other work.
const JOBS: usize = 3;

/// Writes the configuration of a pool on loopback.
fn write_configuration(home: &Path) -> PathBuf {
    let listeners = [(); 1].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let controller = listeners[0].local_addr().unwrap();
    let key = home.join("key");
    fs::write(&key, KEY).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let home = home.display();
    let mut text = format!(
        "[pool]\nname = \"flash\"\ngranularity = \"1GiB\"\n\
         [controller]\naddress = \"{controller}\"\ndirectory = \"{home}/controller\"\n\
         socket = \"{home}/controller.socket\"\n\
         [agent]\ndirectory = \"{home}/agent\"\n\
         [auth]\nmethod = \"key\"\nkey_file = \"{home}/key\"\n"
    );
    for node in 0..STORAGE_NODES {
        // No data is moved, so nothing connects to these addresses.
        text.push_str(&format!(
            "[[storage]]\nname = \"s{node}\"\naddress = \"127.0.0.1:{}\"\n\
             directory = \"{home}/s{node}\"\ncapacity = \"6TiB\"\n",
            20_000 + node
        ));
    }
    let file = PathBuf::from(format!("{home}/pool.toml"));
    fs::write(&file, text).unwrap();
    file
}

/// Calls of programs of the bridge, with the seconds that the fastest call of each function took.
struct Calls {
    pool: PathBuf,
    fastest: Vec<(String, f64)>,
}

impl Calls {
    /// Makes a call and returns its output.
    fn make(&mut self, program: &str, label: &str, arguments: &[&str]) -> String {
        let program = built_program(program);
        let begun = Instant::now();
        let output =
            Command::new(program).env("FOREBAY_POOL", &self.pool).args(arguments).output().unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        assert!(output.status.success(), "{label}: {}", text_of(&output));
        match self.fastest.iter_mut().find(|(known, _)| known == label) {
            Some((_, fastest)) => *fastest = seconds.min(*fastest),
            None => self.fastest.push((label.to_owned(), seconds)),
        }
        text_of(&output)
    }

    /// Calls a function of `dw_wlm_cli`.
    fn function(&mut self, name: &str, more: &[&str]) -> String {
        let arguments = [&["--function", name], more].concat();
        self.make("dw_wlm_cli", name, &arguments)
    }
}

#[test]
fn calls_on_a_pool_of_300_storage_nodes_return_within_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let file = write_configuration(directory.path());
    let config = PoolConfig::read(&file).unwrap();
    let controller = Daemon::start_controller(&config).unwrap();
    let nodes = SimulatedNodes::start(config.controller, KEY, STORAGE_NODES, COMPUTE_NODES);
    let client = ControllerClient::open(&file).unwrap();
    wait_until("all storage nodes are in service", || {
        let status = client.status().ok()?;
        (status.control.nodes.iter().filter(|node| node.online).count() == STORAGE_NODES)
            .then_some(())
    });

    let script = directory.path().join("job.sh");
    let text = "#!/bin/sh\n#DW jobdw pool=flash capacity=300TiB type=scratch access_mode=striped\n\
                #DW stage_in type=directory source=/pfs/in destination=$DW_JOB_STRIPED/in\n\
                #DW stage_out type=directory source=$DW_JOB_STRIPED/out destination=/pfs/out\n";
    fs::write(&script, text).unwrap();
    let script = script.to_str().unwrap();
    let hosts = directory.path().join("hosts");
    let names: Vec<String> = (0..COMPUTE_NODES).map(simulated::compute_name).collect();
    fs::write(&hosts, names.join("\n")).unwrap();
    let hosts = hosts.to_str().unwrap();
    let variables = directory.path().join("variables");
    let paths = variables.to_str().unwrap();

    let mut calls = Calls { pool: file, fastest: Vec::new() };
    for job in 0..JOBS {
        let id = format!("{}", 100 + job);
        let token = ["--token", &*id, "--job", script];
        let with = |more: &[&'static str]| [&token[..], more].concat();
        calls.function("job_process", &["--job", script]);
        calls.function("setup", &with(&["--user", "41000", "--groupid", "41000"]));
        calls.function("data_in", &token);
        let size = calls.function("real_size", &token);
        assert!(size.contains(&format!("\"bytes\":{}", 300u64 << 40)), "{size}");
        calls.function("paths", &[&token[..], &["--pathfile", paths]].concat());
        assert!(fs::read_to_string(&variables).unwrap().contains("DW_JOB_STRIPED="));
        calls.function("pre_run", &[&token[..], &["--nodehostnamefile", hosts]].concat());
        assert_eq!(nodes.fragments(), STORAGE_NODES);
        assert_eq!(nodes.mounts(), COMPUTE_NODES);
        for query in ["pools", "show_instances", "show_sessions", "show_configurations"] {
            let text = calls.function(query, &[]);
            assert!(text.contains("\"id\""), "{query}: {text}");
        }
        calls.make("dwstat", "dwstat", &["most"]);
        calls.function("post_run", &token);
        assert_eq!(nodes.mounts(), 0);
        calls.function("data_out", &token);
        calls.function("teardown", &token);
        assert_eq!(nodes.fragments(), 0);
    }
    for (label, seconds) in &calls.fastest {
        println!("{label:>20} {seconds:.3} s");
    }
    for (label, seconds) in &calls.fastest {
        assert!(*seconds < LIMIT, "{label} took {seconds} s");
    }
    drop(nodes);
    controller.stop().unwrap();
}
