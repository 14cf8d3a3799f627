//! Burst buffers in Slurm's accounting: MariaDB, slurmdbd and Slurm on the hosts of a pool.
//!
//! Needs root: it creates network namespaces.

use crate::cluster;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use cluster::site::{ROOT, Site, expect_success};
use cluster::slurm::{Plugin, SLURM, SlurmSite};
use cluster::{Daemon, text_of, wait_until};

const MARIADBD: &str = "/usr/sbin/mariadbd";
const SLURMDBD: &str = "/usr/sbin/slurmdbd";
/// Port of the database, in the network namespace of the first host.
const PORT: u16 = 3306;

/// Starts a database without access control, which only the first host's own processes reach.
fn start_database(site: &Site, directory: &Path) -> Daemon {
    let data = directory.join("database");
    let host = site.host(0);
    let options = ["--no-defaults", "--user=root", "--skip-test-db"];
    let mut install = host.command(ROOT, "mariadb-install-db");
    install.args(options).arg(format!("--datadir={}", data.display()));
    expect_success(&install.output().unwrap());
    let mut server = host.command(ROOT, MARIADBD);
    server.args([
        "--no-defaults",
        "--user=root",
        "--skip-grant-tables",
        "--bind-address=127.0.0.1",
    ]);
    server.arg(format!("--port={PORT}")).arg(format!("--datadir={}", data.display()));
    server.arg(format!("--socket={}", directory.join("database.socket").display()));
    server.arg(format!("--pid-file={}", directory.join("database.pid").display()));
    let daemon = host.start_logged("mariadbd", server);
    wait_until("the database answers", || {
        daemon.output().contains("ready for connections").then_some(())
    });
    daemon
}

fn start_slurmdbd(site: &Site, directory: &Path) -> Daemon {
    let file = directory.join("slurmdbd.conf");
    let text = format!(
        "AuthType=auth/munge\nAuthInfo=socket={}\nDbdHost=n1\nDbdAddr={}\nSlurmUser=slurm\n\
         PidFile={}/state/slurmdbd.pid\nStorageType=accounting_storage/mysql\n\
         StorageHost=127.0.0.1\nStoragePort={PORT}\nStorageUser=root\nStoragePass=none\n\
         StorageLoc=slurm\n",
        site.munged.display(),
        site.host(0).address,
        directory.display()
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&file, Some(SLURM.0), Some(SLURM.1)).unwrap();
    let mut command = site.host(0).command(SLURM, SLURMDBD);
    command.arg("-D").env("SLURM_CONF", directory.join("slurm.conf"));
    site.host(0).start_logged("slurmdbd", command)
}

/// Makes the cluster known to `slurmdbd`; `slurmctld` does not start before.
fn add_cluster(site: &Site, directory: &Path, accounting: &str) {
    let file = directory.join("slurm.conf");
    let text = format!(
        "ClusterName=forebay\nSlurmctldHost=n1\nAuthType=auth/munge\nAuthInfo=socket={}\n\
         {accounting}NodeName=n1\n",
        site.munged.display()
    );
    fs::write(&file, text).unwrap();
    wait_until("slurmdbd adds the cluster", || {
        let mut command = site.host(0).command(ROOT, "sacctmgr");
        command.args(["-i", "add", "cluster", "forebay"]).env("SLURM_CONF", &file);
        let added = command.output().unwrap();
        (added.status.success() || text_of(&added).contains("Nothing new")).then_some(())
    });
}

#[test]
fn sacct_reports_the_space_of_a_job() {
    if !Path::new(MARIADBD).exists() || !Path::new(SLURMDBD).exists() {
        let text =
            "SKIPPED: slurmdbd or MariaDB is not installed; `scripts/setup.sh test` installs them";
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let mut daemons = Vec::new();
    let started = SlurmSite::start_prepared(Plugin::DataWarp, "", |site, directory| {
        daemons.push(start_database(site, directory));
        daemons.push(start_slurmdbd(site, directory));
        let accounting = format!(
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost={}\n\
             AccountingStoragePass={}\nAccountingStorageTRES=bb/datawarp\n",
            site.host(0).address,
            site.munged.display()
        );
        add_cluster(site, directory, &accounting);
        accounting
    });
    let Some(slurm) = started else {
        return;
    };
    let script = "#!/bin/sh\n#DW jobdw capacity=96MiB type=scratch access_mode=striped\n\
                  test -d $DW_JOB_STRIPED\n";
    let id = slurm.submit(script, &[]);
    slurm.wait_for(&id, "COMPLETED");
    let tres = slurm.job(&id, "TRES").unwrap();
    assert!(tres.contains("bb/datawarp=96M"), "{tres}");
    let allocated = wait_until("sacct shows the job", || {
        let arguments = ["-n", "-P", "-X", "-j", &id, "-o", "State,AllocTRES%200"];
        let text = text_of(&slurm.run(ROOT, "sacct", &arguments));
        text.contains("COMPLETED").then_some(text)
    });
    assert!(allocated.contains("bb/datawarp=96M"), "{allocated}");
    slurm.wait_until_removed(&id);
}
