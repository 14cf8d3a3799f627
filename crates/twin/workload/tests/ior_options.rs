//! IOR's command line as its users write it: every option, and what is said of wrong ones.

use forebay_units::Bytes;
use forebay_workload::ior::{
    AccessPattern, Api, Ior, IorError, NodeOrder, Processes, Reorder, Stonewall,
};

fn parse(line: &str) -> Result<Vec<Ior>, IorError> {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments)
}

fn one(line: &str) -> Ior {
    let mut tests = parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    assert_eq!(tests.len(), 1, "{line}");
    tests.remove(0)
}

/// What is said of a wrong command line.
fn wrong(line: &str) -> String {
    match parse(line) {
        Ok(_) => panic!("`{line}` was taken"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn defaults_are_those_of_ior() {
    let ior = one("");
    assert_eq!(ior.api, Api::Posix);
    assert_eq!(
        (ior.block, ior.transfer),
        (Bytes(1 << 20), Bytes(256 << 10))
    );
    assert_eq!((ior.segments, ior.repetitions, ior.node_offset), (1, 1, 1));
    assert!(ior.write && ior.read && !ior.file_per_process && !ior.keep_file);
    assert_eq!(ior.test_file, "testFile");
    assert_eq!(
        (ior.reorder, ior.stonewall, ior.tasks),
        (Reorder::Own, None, None)
    );
    assert_eq!(ior.notes, []);
}

#[test]
fn every_option_sets_its_own_field_and_no_other() {
    type Change = fn(&mut Ior);
    let cases: &[(&str, Change)] = &[
        ("-a POSIX", |_| {}),
        ("-a MPIIO", |i| i.api = Api::MpiIo),
        ("-a mpiio", |i| i.api = Api::MpiIo),
        ("-b 64m", |i| i.block = Bytes(64 << 20)),
        ("-t 512k", |i| i.transfer = Bytes(512 << 10)),
        ("-s 16", |i| i.segments = 16),
        ("-s 1k", |i| i.segments = 1024),
        ("-F", |i| i.file_per_process = true),
        ("-w", |i| i.read = false),
        ("-r", |i| i.write = false),
        ("-wr", |_| {}),
        ("-o /scratch/data", |i| i.test_file = "/scratch/data".into()),
        ("-o /a=b", |i| i.test_file = "/a=b".into()),
        ("-i 5", |i| i.repetitions = 5),
        ("-N 8", |i| i.tasks = Some(8)),
        ("-e", |i| i.fsync = true),
        ("-Y", |i| i.fsync_per_write = true),
        ("-g", |i| i.barriers = true),
        ("-C", |i| i.reorder = Reorder::Constant),
        ("-C -Q 3", |i| {
            (i.reorder, i.node_offset) = (Reorder::Constant, 3)
        }),
        ("-Z", |i| i.reorder = Reorder::Random),
        ("-ZZ", |i| i.reorder = Reorder::Shuffle),
        ("-Z -Z", |i| i.reorder = Reorder::Shuffle),
        ("-Z -X -7", |i| {
            (i.reorder, i.reorder_seed) = (Reorder::Random, Some(-7))
        }),
        ("-z", |i| i.random_offsets = true),
        ("-z --random-offset-seed=3", |i| {
            (i.random_offsets, i.offset_seed) = (true, Some(3))
        }),
        ("-z --random-offset-seed 3", |i| {
            (i.random_offsets, i.offset_seed) = (true, Some(3))
        }),
        ("-c -a MPIIO", |i| {
            (i.collective, i.api) = (true, Api::MpiIo)
        }),
        ("--collective -a MPIIO", |i| {
            (i.collective, i.api) = (true, Api::MpiIo)
        }),
        ("-k", |i| i.keep_file = true),
        ("-D 30", |i| {
            i.stonewall = Some(Stonewall {
                seconds: 30,
                wear_out: false,
            })
        }),
        ("-D 30 -O stoneWallingWearOut=1", |i| {
            i.stonewall = Some(Stonewall {
                seconds: 30,
                wear_out: true,
            });
        }),
        ("-D 0", |_| {}),
        ("-O stonewallingwearoutiterations=9", |i| {
            i.max_transfers = Some(9)
        }),
        ("-d 10", |i| i.delay_seconds = 10),
        ("-u -F", |i| {
            (i.unique_directory, i.file_per_process) = (true, true)
        }),
        ("-E", |i| i.use_existing = true),
        ("-m", |i| i.multi_file = true),
        ("-T 60", |i| i.max_minutes = Some(60)),
        ("--posix.odirect", |i| i.direct_io = true),
        ("-O useO_DIRECT=1", |i| i.direct_io = true),
        ("-O blockSize=8m,transferSize=4m,fsync=1", |i| {
            (i.block, i.transfer, i.fsync) = (Bytes(8 << 20), Bytes(4 << 20), true);
        }),
        ("-O summaryFormat=default", |_| {}),
    ];
    for (line, change) in cases {
        let mut expected = one("");
        change(&mut expected);
        // Notes say what changes nothing here: another test's subject.
        expected.notes = one(line).notes;
        assert_eq!(one(line), expected, "{line}");
    }
}

#[test]
fn forms_of_options() {
    for line in [
        "-b 4m -t 2m -F -w",
        "-b4m -t2m -Fw",
        "-b=4m -t=2m -wF",
        "-wFb 4m -t 2m",
    ] {
        assert_eq!(one(line), one("-w -F -b 4m -t 2m"), "{line}");
    }
    assert_eq!(
        one("-b 2m -b 4m").block,
        Bytes(4 << 20),
        "the last one counts"
    );
    assert!(!one("-F -F=0").file_per_process);
    assert_eq!(one("-i=3").repetitions, 3);
}

#[test]
fn options_without_effect_are_taken_and_told() {
    for option in [
        "-G 123",
        "-l random",
        "-R",
        "-W",
        "-K",
        "-v",
        "-j 3",
        "-x",
        "-A 5",
        "-M 50%",
        "-y",
        "-B",
        "-H",
        "--dataPacketType=i",
    ] {
        let ior = one(&format!("-w -F {option}"));
        let name = option.split([' ', '=']).next().unwrap();
        let notes: Vec<&str> = ior.notes.iter().map(|n| n.option.as_str()).collect();
        assert_eq!(notes, [name]);
        assert!(
            ior.notes[0].to_string().contains("taken without effect: "),
            "{}",
            ior.notes[0]
        );
        let plain = one("-w -F");
        let same = Ior {
            notes: vec![],
            verbosity: plain.verbosity,
            reference_number: plain.reference_number,
            ..ior
        };
        assert_eq!(same, plain, "{option}");
    }
    assert_eq!(
        (one("-vvv").verbosity, one("-A 5").reference_number),
        (3, 5)
    );
    assert_eq!(one("-vvv").notes.len(), 1);
}

#[test]
fn options_that_need_another_one_are_told() {
    for (line, option) in [
        ("-c", "-c"),
        ("-a MPIIO", "-a"),
        ("--posix.odirect", "--posix.odirect"),
        ("-u", "-u"),
        ("-Q 2", "-Q"),
        ("-ZZ -Q 2", "-Q"),
        ("-X 3", "-X"),
        ("--random-offset-seed=3", "--random-offset-seed"),
        ("-w -C", "-C"),
        ("-w -Z", "-Z"),
        ("-r -e", "-e"),
        ("-r -Y", "-Y"),
        ("-r -E", "-E"),
    ] {
        let notes = one(line).notes;
        assert_eq!(notes.len(), 1, "{line}: {notes:?}");
        assert_eq!(notes[0].option, option);
        assert!(notes[0].text.contains("without effect here"), "{line}");
    }
}

#[test]
fn unknown_options_are_named_with_place_and_nearest() {
    let said = wrong("-a POSIX -b 4m --blocksize 3m");
    assert!(
        said.starts_with("argument 5: IOR has no option `--blocksize`"),
        "{said}"
    );
    assert!(said.contains("-b (blockSize)"), "{said}");
    let said = wrong("-w -L");
    assert!(
        said.starts_with("argument 2: IOR has no option `-L`"),
        "{said}"
    );
    assert!(said.contains("-l"), "{said}");
    let said = wrong("-w7r");
    assert!(said.contains("`-7 in -w7r`"), "{said}");
    assert!(said.contains("its letters are"), "{said}");
    let said = wrong("-w --posix.odirekt");
    assert!(said.contains("the nearest is --posix.odirect"), "{said}");
    let said = wrong("-O filesPerProc=1");
    assert!(said.starts_with("argument 1: "), "{said}");
    assert!(said.contains("-F (filePerProc)"), "{said}");
    let said = wrong("-w 4m");
    assert!(
        said.starts_with("argument 2: IOR has no option `4m`"),
        "{said}"
    );
    assert!(wrong("-").contains("`-`"));
    assert!(wrong("--").contains("`--`"));
    assert!(wrong("-é").contains("`-é`"));
}

#[test]
fn options_of_ior_that_are_not_simulated_are_refused_with_the_reason() {
    for line in [
        "-I",
        "-J 4",
        "-n",
        "-p",
        "-P",
        "-q",
        "-S",
        "-U hints",
        "-V",
        "--dryRun",
        "--randomPrefill=2m",
        "--mpiio.useFileView",
        "--posix.lustre.stripecount=4",
        "-O interIODelay=5",
        "-O summaryFile=x",
        "-O stoneWallingStatusFile=x",
    ] {
        let said = wrong(line);
        assert!(said.contains("is not simulated: "), "{line}: {said}");
    }
    assert!(wrong("-a HDF5").contains("POSIX and MPIIO are simulated"));
    assert!(wrong("-O summaryFormat=JSON").contains("cannot be `JSON`"));
}

#[test]
fn values_that_cannot_be_are_refused() {
    for (line, part) in [
        ("-b", "argument 1: option `-b` needs a value"),
        ("-b=", "needs a value"),
        ("-b 0", "cannot be `0`: the least is 1"),
        ("-t 0", "cannot be `0`"),
        ("-s 0", "cannot be `0`"),
        ("-i 0", "cannot be `0`"),
        ("-N 0", "cannot be `0`"),
        ("-d -1", "cannot be `-1`"),
        ("-D -1", "cannot be `-1`"),
        ("-Q -1", "cannot be `-1`"),
        ("-T -1", "cannot be `-1`"),
        ("-b 1.5m", "a whole number, with k, m, g"),
        ("-b four", "cannot be `four`"),
        ("-w -b 9999999999g", "argument 2: option `-b` cannot be"),
        ("-i 3000000000", "the most is 2147483647"),
        ("-X 3000000000", "the most is 2147483647"),
        ("-F=x", "option `-F` cannot be `x`"),
        ("-l", "needs a value"),
        ("-o @x", "is empty"),
        ("-O", "needs a value"),
        ("-O blockSize", "`blockSize` is no directive"),
        ("-O blockSize=4m,,fsync=1", "`` is no directive"),
    ] {
        let said = wrong(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}

#[test]
fn options_that_contradict_each_other_are_refused_as_by_ior() {
    for (line, part) in [
        (
            "-b 3m -t 2m",
            "argument 3: the block size (-b) of 3145728 bytes is not a multiple",
        ),
        ("-b 1m -t 2m", "is smaller than the transfer size"),
        ("-b 1001 -t 1001", "8-byte words"),
        ("-C -Z", "-C and -Z both say"),
        ("-z -c -a MPIIO", "-z and -c"),
        ("-z -C", "-z and -C on a shared file"),
        ("-z -Z", "-z and -Z on a shared file"),
        ("-zz", "-z twice"),
        ("-z -b 1m -t 1m", "here a block is one transfer"),
        ("-O stoneWallingWearOut=1", "add -D"),
        ("-F -u -o a@b", "several file names"),
    ] {
        let said = wrong(line);
        assert!(said.contains(part), "{line}: {said}");
    }
    for line in ["-z -C -F", "-z -Z -F", "-c -a MPIIO", "-z", "-o a@b -F"] {
        one(line);
    }
}

#[test]
fn what_io500_runs_is_taken() {
    let easy = one(
        "-a POSIX -t 2m -b 9920000m -F -w -C -Q 1 -g -G 27 -k -e -o /bb/ior-easy \
                    -O stoneWallingWearOut=1 -D 300",
    );
    assert_eq!(easy.block, Bytes(9_920_000 << 20));
    let hard = one("-a POSIX -s 10000000 -t 47008 -b 47008 -w -C -Q 1 -g -k -e");
    assert_eq!((hard.transfer, hard.segments), (Bytes(47_008), 10_000_000));
}

#[test]
fn help_lists_every_option_taken() {
    assert_eq!(parse("-w -h"), Err(IorError::Help));
    assert_eq!(parse("--help"), Err(IorError::Help));
    let help = forebay_workload::ior::help();
    for option in "aAbBcCdDeEfFgGHijkKlmMNoOQrRstTuvwWxXyYzZ".chars() {
        assert!(help.contains(&format!("\n  -{option} ")), "{option}");
    }
    assert!(help.contains("--posix.odirect") && !help.contains("dryRun"));
}

#[test]
fn scripts_come_on_top_of_the_command_line() {
    let file = std::env::temp_dir().join(format!("forebay-script-{}.ior", std::process::id()));
    std::fs::write(
        &file,
        "IOR START\ntransferSize=1m\nRUN\nreadFile=1,writeFile=0\nRUN\nIOR STOP\n",
    )
    .unwrap();
    let name = file.to_str().unwrap();
    let tests = parse(&format!("-w -b 4m -f {name}")).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(tests.len(), 2);
    assert!(
        tests
            .iter()
            .all(|t| (t.block, t.transfer) == (Bytes(4 << 20), Bytes(1 << 20)))
    );
    assert_eq!(
        (tests[0].write, tests[1].write, tests[1].read),
        (true, false, true)
    );

    let said = wrong("-w -f /nowhere/script.ior");
    assert!(
        said.starts_with("argument 2: cannot read the IOR script `/nowhere/script.ior`"),
        "{said}"
    );
}

#[test]
fn a_job_has_to_have_room() {
    let processes = |count, per_node| Processes {
        count,
        per_node,
        order: NodeOrder::Block,
        seed: 0,
    };
    let refused =
        |line: &str, p: Processes| AccessPattern::new(&one(line), p).unwrap_err().to_string();
    assert!(refused("-N 9", processes(8, 4)).contains("9 tasks, but the job has only 8 processes"));
    assert!(refused("", processes(0, 4)).contains("at least one process"));
    assert!(refused("", processes(4, 0)).contains("at least one process"));
    assert!(refused("-b 1t -s 1m", processes(1024, 1)).contains("beyond the 2^63 bytes"));
    assert!(refused("-b 1t -s 1p", processes(1, 1)).contains("beyond the 2^63 bytes"));
    assert!(refused("-Z -Q 1 -N 4", processes(8, 4)).contains("lower -Q or raise -N"));
    assert_eq!(
        AccessPattern::new(&one("-N 8"), processes(8, 4))
            .unwrap()
            .tasks(),
        8
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn no_command_line_panics(
        arguments in proptest::collection::vec(
            proptest::prop_oneof!["-{0,2}[a-zA-Z0-9=.,@é-]{0,6}", "-[a-zA-Z]", "[0-9]{1,20}[kmgtp]?"],
            0..8,
        ),
    ) {
        match Ior::parse(&arguments) {
            // What is taken can be laid out, or the reason is given.
            Ok(tests) => for ior in tests {
                let processes = Processes { count: 5, per_node: 2, order: NodeOrder::Block, seed: 0 };
                if let Ok(layout) = AccessPattern::new(&ior, processes) {
                    let stream = layout.stream(layout.tasks() - 1, forebay_workload::ior::Access::Read);
                    if let Some(last) = stream.len().checked_sub(1) {
                        let transfer = stream.transfer(last);
                        proptest::prop_assert!(transfer.offset + transfer.bytes <= layout.total_bytes());
                    }
                }
            },
            Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
        }
    }
}
