//! IOR's command line: every option, and the errors of invalid ones.

use forebay_units::Bytes;
use forebay_workload::ior::{
    Access, AccessPattern, Api, Ior, IorError, Processes, Reorder, Stonewall,
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

/// The error of an invalid command line.
fn wrong(line: &str) -> String {
    match parse(line) {
        Ok(_) => panic!("`{line}` was accepted"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn defaults_equal_those_of_ior() {
    let ior = one("");
    assert_eq!(ior.api, Api::Posix);
    assert_eq!((ior.block, ior.transfer), (Bytes(1 << 20), Bytes(256 << 10)));
    assert_eq!((ior.segments, ior.repetitions, ior.node_offset), (1, 1, 1));
    assert!(ior.write && ior.read && !ior.file_per_process && !ior.keep_file);
    assert_eq!(ior.test_file, "testFile");
    assert_eq!((ior.reorder, ior.stonewall, ior.tasks), (Reorder::Own, None, None));
    assert_eq!(ior.notes, []);
}

#[test]
fn every_option_sets_only_its_own_field() {
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
        ("-C -Q 3", |i| (i.reorder, i.node_offset) = (Reorder::Constant, 3)),
        ("-Z", |i| i.reorder = Reorder::Random),
        ("-ZZ", |i| i.reorder = Reorder::Shuffle),
        ("-Z -Z", |i| i.reorder = Reorder::Shuffle),
        ("-Z -X -7", |i| (i.reorder, i.reorder_seed) = (Reorder::Random, Some(-7))),
        ("-z", |i| i.random_offsets = true),
        ("-z --random-offset-seed=3", |i| (i.random_offsets, i.offset_seed) = (true, Some(3))),
        ("-z --random-offset-seed 3", |i| (i.random_offsets, i.offset_seed) = (true, Some(3))),
        ("-c -a MPIIO", |i| (i.collective, i.api) = (true, Api::MpiIo)),
        ("--collective -a MPIIO", |i| (i.collective, i.api) = (true, Api::MpiIo)),
        ("-k", |i| i.keep_file = true),
        ("-D 30", |i| i.stonewall = Some(Stonewall { seconds: 30, wear_out: false })),
        ("-D 30 -O stoneWallingWearOut=1", |i| {
            i.stonewall = Some(Stonewall { seconds: 30, wear_out: true });
        }),
        ("-D 0", |_| {}),
        ("-O stonewallingwearoutiterations=9", |i| i.max_transfers = Some(9)),
        ("-d 10", |i| i.delay_seconds = 10),
        ("-u -F", |i| (i.unique_directory, i.file_per_process) = (true, true)),
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
        // Notes are the subject of other tests.
        expected.notes = one(line).notes;
        assert_eq!(one(line), expected, "{line}");
    }
}

#[test]
fn equivalent_forms_of_options_give_equal_tests() {
    for line in ["-b 4m -t 2m -F -w", "-b4m -t2m -Fw", "-b=4m -t=2m -wF", "-wFb 4m -t 2m"] {
        assert_eq!(one(line), one("-w -F -b 4m -t 2m"), "{line}");
    }
    assert_eq!(one("-b 2m -b 4m").block, Bytes(4 << 20), "the last one counts");
    assert!(!one("-F -F=0").file_per_process);
    assert_eq!(one("-i=3").repetitions, 3);
}

#[test]
fn options_without_effect_add_a_note() {
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
        assert!(ior.notes[0].to_string().contains("accepted without effect: "), "{}", ior.notes[0]);
        let plain = one("-w -F");
        let same = Ior {
            notes: vec![],
            verbosity: plain.verbosity,
            reference_number: plain.reference_number,
            ..ior
        };
        assert_eq!(same, plain, "{option}");
    }
    assert_eq!((one("-vvv").verbosity, one("-A 5").reference_number), (3, 5));
    assert_eq!(one("-vvv").notes.len(), 1);
}

#[test]
fn options_that_need_another_option_add_a_note() {
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
fn unknown_options_are_reported_with_location_and_suggestion() {
    let error = wrong("-a POSIX -b 4m --blocksize 3m");
    assert!(error.starts_with("argument 5: IOR has no option `--blocksize`"), "{error}");
    assert!(error.contains("-b (blockSize)"), "{error}");
    let error = wrong("-w -L");
    assert!(error.starts_with("argument 2: IOR has no option `-L`"), "{error}");
    assert!(error.contains("-l"), "{error}");
    let error = wrong("-w7r");
    assert!(error.contains("`-7 in -w7r`"), "{error}");
    assert!(error.contains("its letters are"), "{error}");
    let error = wrong("-w --posix.odirekt");
    assert!(error.contains("the nearest is --posix.odirect"), "{error}");
    let error = wrong("-O filesPerProc=1");
    assert!(error.starts_with("argument 1: "), "{error}");
    assert!(error.contains("-F (filePerProc)"), "{error}");
    let error = wrong("-w 4m");
    assert!(error.starts_with("argument 2: IOR has no option `4m`"), "{error}");
    assert!(wrong("-").contains("`-`"));
    assert!(wrong("--").contains("`--`"));
    assert!(wrong("-é").contains("`-é`"));
}

#[test]
fn unsupported_options_of_ior_are_refused_with_the_reason() {
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
        let error = wrong(line);
        assert!(error.contains("is not simulated: "), "{line}: {error}");
    }
    assert!(wrong("-a HDF5").contains("POSIX and MPIIO are simulated"));
    assert!(wrong("-O summaryFormat=JSON").contains("cannot be `JSON`"));
}

#[test]
fn invalid_values_are_refused() {
    for (line, part) in [
        ("-b", "argument 1: option `-b` needs a value"),
        ("-b=", "needs a value"),
        ("-b 0", "cannot be `0`: the minimum is 1"),
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
        ("-i 3000000000", "the maximum is 2147483647"),
        ("-X 3000000000", "the maximum is 2147483647"),
        ("-F=x", "option `-F` cannot be `x`"),
        ("-l", "needs a value"),
        ("-o @x", "is empty"),
        ("-O", "needs a value"),
        ("-O blockSize", "`blockSize` is not a directive"),
        ("-O blockSize=4m,,fsync=1", "`` is not a directive"),
    ] {
        let error = wrong(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn contradictory_options_are_refused_as_in_ior() {
    for (line, part) in [
        ("-b 3m -t 2m", "argument 3: the block size (-b) of 3145728 bytes is not a multiple"),
        ("-b 1m -t 2m", "is smaller than the transfer size"),
        ("-b 1001 -t 1001", "8-byte words"),
        ("-C -Z", "-C and -Z both select"),
        ("-z -c -a MPIIO", "-z and -c"),
        ("-z -C", "-z and -C on a shared file"),
        ("-z -Z", "-z and -Z on a shared file"),
        ("-zz", "-z twice"),
        ("-z -b 1m -t 1m", "but a block is one transfer"),
        ("-O stoneWallingWearOut=1", "add -D"),
        ("-F -u -o a@b", "several file names"),
    ] {
        let error = wrong(line);
        assert!(error.contains(part), "{line}: {error}");
    }
    for line in ["-z -C -F", "-z -Z -F", "-c -a MPIIO", "-z", "-o a@b -F"] {
        one(line);
    }
}

#[test]
fn io500_command_lines_are_accepted() {
    let easy = one("-a POSIX -t 2m -b 9920000m -F -w -C -Q 1 -g -G 27 -k -e -o /bb/ior-easy \
                    -O stoneWallingWearOut=1 -D 300");
    assert_eq!(easy.block, Bytes(9_920_000 << 20));
    let hard = one("-a POSIX -s 10000000 -t 47008 -b 47008 -w -C -Q 1 -g -k -e");
    assert_eq!((hard.transfer, hard.segments), (Bytes(47_008), 10_000_000));
}

#[test]
fn help_lists_every_accepted_option() {
    assert_eq!(parse("-w -h"), Err(IorError::Help));
    assert_eq!(parse("--help"), Err(IorError::Help));
    let help = forebay_workload::ior::help();
    for option in "aAbBcCdDeEfFgGHijkKlmMNoOQrRstTuvwWxXyYzZ".chars() {
        assert!(help.contains(&format!("\n  -{option} ")), "{option}");
    }
    assert!(help.contains("--posix.odirect") && !help.contains("dryRun"));
}

#[test]
fn script_extends_the_command_line() {
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
    assert!(tests.iter().all(|t| (t.block, t.transfer) == (Bytes(4 << 20), Bytes(1 << 20))));
    assert_eq!((tests[0].write, tests[1].write, tests[1].read), (true, false, true));

    let error = wrong("-w -f /nowhere/script.ior");
    assert!(
        error.starts_with("argument 2: cannot read the IOR script `/nowhere/script.ior`"),
        "{error}"
    );
}

#[test]
fn jobs_with_too_few_processes_are_refused() {
    let processes = |count, per_node| Processes { count, per_node, seed: 0 };
    let refused =
        |line: &str, p: Processes| AccessPattern::new(&one(line), p).unwrap_err().to_string();
    assert!(refused("-N 9", processes(8, 4)).contains("9 tasks, but the job has only 8 processes"));
    assert!(refused("", processes(0, 4)).contains("at least one process"));
    assert!(refused("", processes(4, 0)).contains("at least one process"));
    assert!(refused("-b 1t -s 1m", processes(1024, 1)).contains("exceeds the 2^63 bytes"));
    assert!(refused("-b 1t -s 1p", processes(1, 1)).contains("exceeds the 2^63 bytes"));
    assert!(refused("-Z -Q 1 -N 4", processes(8, 4)).contains("lower -Q or raise -N"));
    assert_eq!(AccessPattern::new(&one("-N 8"), processes(8, 4)).unwrap().tasks(), 8);
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
            // An accepted test has an access pattern, or an error gives the reason.
            Ok(tests) => for ior in tests {
                let processes = Processes { count: 5, per_node: 2, seed: 0 };
                if let Ok(pattern) = AccessPattern::new(&ior, processes)
                    && let Some(last) = pattern.transfers_per_rank().checked_sub(1)
                {
                    let transfer = pattern.transfer(pattern.tasks() - 1, Access::Read, last);
                    proptest::prop_assert!(transfer.offset + transfer.bytes <= pattern.total_bytes());
                }
            },
            Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
        }
    }
}
