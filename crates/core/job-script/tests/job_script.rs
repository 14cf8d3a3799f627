//! Job scripts, valid and invalid.

use forebay_job_script::{
    AccessMode, BufferPath, Capacity, Direction, InstanceRef, InstanceType, JobScript,
    OptimizationStrategy, StageKind, StagePath, Symbols, parse_list,
};
use forebay_units::Bytes;

fn symbols() -> Symbols {
    Symbols {
        job_id: "42".into(),
        array: None,
        work_dir: "/home/ada/run".into(),
        user: "ada".into(),
        job_name: "heat".into(),
    }
}

fn pfs(path: &str) -> StagePath {
    StagePath::Pfs(path.into())
}

fn job(path: &str) -> StagePath {
    StagePath::Buffer(BufferPath { instance: InstanceRef::Job, path: path.into() })
}

/// The design slides' example (Cray User Group, May 2016).
const SLIDES: &str = "#!/bin/sh
#DW jobdw type=scratch access_mode=striped capacity=100TiB
#DW persistentdw name=common_dbs
#DW stage_in type=file source=/pfs/user/input \\
                        destination=$DW_JOB_STRIPED/input
#DW stage_out type=directory source=$DW_JOB_STRIPED/results/ \\
                        destination=/pfs/user/results/

aprun -n 5000 a.out \\
  --database=$DW_PERSISTENT_STRIPED_common_dbs/abc \\
  --parameter-file=$DW_JOB_STRIPED/input \\
  --resultsdir=$DW_JOB_STRIPED/results
";

#[test]
fn example_of_the_design_slides_parses() {
    let script = JobScript::parse(SLIDES, None).unwrap();
    let instance = script.job().unwrap();
    assert_eq!(instance.capacity, Capacity::Bytes(Bytes(100 << 40)));
    assert_eq!(instance.kind, InstanceType::Scratch);
    assert!(
        instance.has_access_mode(AccessMode::Striped)
            && !instance.has_access_mode(AccessMode::Private)
    );
    assert_eq!(script.persistents[0].name, "common_dbs");
    let input: Vec<_> = script.stages(Direction::In).collect();
    assert_eq!(input.len(), 1);
    assert_eq!((input[0].kind, input[0].line), (StageKind::File, 4));
    assert_eq!((&input[0].source, &input[0].destination), (&pfs("/pfs/user/input"), &job("input")));
    let output: Vec<_> = script.stages(Direction::Out).collect();
    assert_eq!(output[0].kind, StageKind::Directory);
    assert_eq!(
        (&output[0].source, &output[0].destination),
        (&job("results"), &pfs("/pfs/user/results/"))
    );
}

#[test]
fn every_directive_and_modifier_parses() {
    let script = JobScript::parse(
        "#!/bin/bash
#SBATCH -N 2
#DW jobdw capacity=2nodes type=scratch access_mode=striped(MFS=10GiB,client_cache=yes),private(MFC=1000) pool=wlm_pool optimization_strategy=wear

#DW swap 8 pool=wlm_pool
#BB create_persistent name=dbs capacity=3TB access=striped type=scratch
#DW destroy_persistent name=old hurry
#BB destroy_persistent name=older
#DW\tpersistentdw\tname=dbs
#DW stage_in type=list source=/pfs/list destination=${DW_PERSISTENT_STRIPED_dbs}/in/./here//
#DW stage_out type=file source=$DW_JOB_STRIPED/a/b.out destination=/pfs/out/
#DW stage_out type=list source=/pfs/list destination=/pfs/out
srun a.out
#DW jobdw this is not read
",
        None,
    )
    .unwrap();
    let instance = script.job().unwrap();
    assert_eq!(instance.capacity, Capacity::Nodes(2));
    assert_eq!(instance.pool.as_deref(), Some("wlm_pool"));
    assert_eq!(instance.access[0].modifiers.max_file_size, Some(Bytes(10 << 30)));
    assert_eq!(instance.access[0].modifiers.client_cache, Some(true));
    assert_eq!(instance.access[1].modifiers.max_files, Some(1000));
    assert_eq!(instance.modifiers.optimization_strategy, Some(OptimizationStrategy::Wear));
    assert_eq!(script.swap().unwrap().size, Bytes(8 << 30));
    assert_eq!(script.creates[0].capacity, Capacity::Bytes(Bytes(3_000_000_000_000)));
    assert!(script.creates[0].for_slurm && !script.destroys[0].for_slurm);
    assert!(script.destroys[0].hurry && !script.destroys[1].hurry);
    let space = InstanceRef::Persistent("dbs".into());
    assert_eq!(
        script.stages[0].destination,
        StagePath::Buffer(BufferPath { instance: space, path: "in/here".into() })
    );
    assert_eq!(script.stages[1].destination, pfs("/pfs/out/b.out"));
    assert_eq!(script.ignored_directives, [14]);
}

#[test]
fn cache_directives_parse() {
    let text = "#DW jobdw capacity=1TiB type=cache pfs=/pfs/ada access_mode=ldbalance read_ahead=8MiB stripe_size=1MiB stripe_count=4 sync_on_close=no sync_to_pfs=yes modified_threshold=1GiB\n";
    let script = JobScript::parse(text, None).unwrap();
    let instance = script.job().unwrap();
    assert_eq!(instance.kind, InstanceType::Cache { pfs: "/pfs/ada".into() });
    assert_eq!(instance.modifiers.stripe_count, Some(4));
    assert_eq!(instance.modifiers.sync_on_close, Some(false));
}

#[test]
fn symbols_are_replaced_until_two_backslashes() {
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped
#DW stage_in type=file source=%d/%u-%x-%A-%%.in destination=$DW_JOB_STRIPED/%j
#DW stage_out type=file source=$DW_JOB_STRIPED/%j\\\\%j destination=/pfs/%j
";
    let script = JobScript::parse(text, Some(&symbols())).unwrap();
    assert_eq!(script.stages[0].source, pfs("/home/ada/run/ada-heat-42-%.in"));
    assert_eq!(script.stages[0].destination, job("42"));
    assert_eq!(script.stages[1].source, job("42%j"));
    assert_eq!(script.stages[1].destination, pfs("/pfs/%j"), "to the end of the directive");
    let array = Symbols { array: Some(("40".into(), "7".into())), ..symbols() };
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped
#DW stage_in type=file source=/pfs/%A/%a destination=$DW_JOB_STRIPED/x\n";
    let script = JobScript::parse(text, Some(&array)).unwrap();
    assert_eq!(script.stages[0].source, pfs("/pfs/40/7"));
    let raw = JobScript::parse(text, None).unwrap();
    assert_eq!(raw.stages[0].source, pfs("/pfs/%A/%a"));
}

#[test]
fn continuation_line_may_repeat_the_marker() {
    for middle in ["#DW ", "# ", "  ", "\t#DW\t"] {
        let text = format!(
            "#DW jobdw capacity=1GiB \\\n{middle}type=scratch \\\n{middle}access_mode=striped\n"
        );
        let script = JobScript::parse(&text, None).unwrap();
        assert!(script.job().is_some(), "{middle:?}");
    }
}

/// Script, then line, column and words of the message.
const MISTAKES: &[(&str, u32, u32, &str)] = &[
    ("#DW jobdw capacity=3.5TB type=scratch access_mode=striped", 1, 21, "write `3500GB`"),
    ("#DW jobdw capacity=10gib type=scratch access_mode=striped", 1, 22, "did you mean `10GiB`"),
    ("#DW jobdw capcity=10GiB type=scratch access_mode=striped", 1, 11, "did you mean `capacity`"),
    ("#DW jobdw type=scratch access_mode=striped", 1, 5, "`jobdw` without `capacity=`"),
    (
        "#DW jobdw mycapacity=1GiB capacity=1GiB type=scratch access_mode=striped",
        1,
        11,
        "no key `mycapacity`",
    ),
    (
        "#DW jobdw capacity=1GiB capacity=2GiB type=scratch access_mode=striped",
        1,
        25,
        "a second time",
    ),
    ("#DW jobdw capacity= type=scratch access_mode=striped", 1, 20, "without a value"),
    (
        "#DW jobdw capacity = 1GiB type=scratch access_mode=striped",
        1,
        11,
        "without a blank before `=`",
    ),
    ("#DW jobdw capacity=1GiB type=scatch access_mode=striped", 1, 30, "unknown type"),
    ("#DW jobdw capacity=1GiB type=scrach access_mode=striped", 1, 30, "did you mean `scratch`"),
    ("#DW jobdw capacity=1GiB type=cache access_mode=striped", 1, 30, "write type=scratch"),
    ("\u{feff}#!/bin/sh\n#DW persistentdw name=x\n", 1, 1, "byte order mark"),
    ("\u{feff}#DW persistentdw name=x\n", 1, 1, "byte order mark"),
    ("#DW jobdw capacity=1GiB type=scratch access_mode=stripped", 1, 50, "did you mean `striped`"),
    ("#DW jobdw capacity=1GiB type=scratch access_mode=striped,striped", 1, 58, "twice"),
    ("#DW jobdw capacity=1GiB type=scratch access_mode=striped(MFS=1GiB", 1, 57, "`(` without `)`"),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=striped(MFX=1GiB)",
        1,
        58,
        "unknown modifier",
    ),
    ("#DW jobdw capacity=1GiB type=scratch access_mode=striped(MFC=+5)", 1, 62, "digits only"),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=striped,ldbalance",
        1,
        50,
        "ldbalance alone",
    ),
    (
        "#DW create_persistent name=p capacity=1GiB type=scratch access_mode=ldbalance",
        1,
        69,
        "no job could fill it",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=ldbalance\n#DW stage_in type=file source=/p/a destination=$DW_JOB_STRIPED/a",
        2,
        1,
        "write `$DW_JOB_LDBALANCE`",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n#DW stage_in type=file source=/p/a destination=$DW_JOB_LDBALANCE/a",
        2,
        1,
        "write `$DW_JOB_STRIPED`",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=ldbalance\n#DW stage_out type=file source=$DW_JOB_LDBALANCE/a destination=/p/a",
        2,
        1,
        "nothing to stage out",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=ldbalance\n#DW stage_out type=list source=/p/list destination=/p/out",
        2,
        1,
        "nothing to stage out",
    ),
    ("#DW stage_in type=file source=/p/a destination=$DW_JOB_LDBALANCE/a", 1, 1, "without `jobdw`"),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=striped read_ahead=1MiB",
        1,
        69,
        "type=cache",
    ),
    ("#DW jobdw capacity=1GiB type=cache access_mode=striped", 1, 30, "without `pfs=`"),
    (
        "#DW jobdw capacity=1GiB type=cache pfs=/p access_mode=private",
        1,
        55,
        "striped or ldbalance",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch pfs=/p access_mode=striped",
        1,
        42,
        "`pfs=` with type=scratch",
    ),
    (
        "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\n#DW jobdw capacity=1GiB type=scratch access_mode=striped",
        3,
        1,
        "the first is in line 1",
    ),
    ("#DW jodw capacity=1GiB", 1, 5, "did you mean `jobdw`"),
    ("#DW", 1, 1, "without a directive"),
    ("#BB jobdw capacity=1GiB", 1, 5, "write `#DW`"),
    ("#DWjobdw capacity=1GiB", 1, 4, "no blank between"),
    ("#dw jobdw capacity=1GiB", 1, 1, "write `#DW`"),
    ("  #DW jobdw capacity=1GiB", 1, 3, "column 1"),
    ("#DW persistentdw name=7up", 1, 23, "not beginning with a digit"),
    ("#DW persistentdw name=a-b", 1, 23, "letters, digits and `_`"),
    ("#DW persistentdw name=a\n#DW persistentdw name=a", 2, 1, "as line 1 does"),
    ("#DW persistentdw name=a\n#DW destroy_persistent name=a", 2, 1, "by the script that uses it"),
    ("#DW destroy_persistent name=a fast", 1, 31, "only `hurry` may stand alone"),
    ("#DW swap", 1, 5, "without a size"),
    ("#DW swap 2nodes", 1, 10, "counts nodes"),
    ("#DW swap 2GiB\n#DW swap 3GiB", 2, 1, "a second `swap`"),
    (
        "#DW create_persistent name=a capacity=1GiB type=cache access_mode=striped",
        1,
        49,
        "cannot be a cache",
    ),
    (
        "#BB create_persistent name=a capacity=1GiB access=striped access_mode=striped",
        1,
        71,
        "both",
    ),
    ("#DW jobdw capacity=1GiB type=scratch \\", 1, 1, "no line follows"),
    ("#DW jobdw capacity=1GiB type=scratch \\\n#SBATCH -N 2", 2, 1, "does not continue it"),
    (
        "#DW jobdw capacity=1GiB \\ type=scratch access_mode=striped",
        1,
        25,
        "not the last character",
    ),
    ("#DW persistentdw name=a\r\n", 1, 24, "Windows"),
    ("#DW persistentdw name=a\u{7}", 1, 24, "control character"),
];

#[test]
fn errors_have_line_column_and_remedy() {
    for (text, line, column, words) in MISTAKES {
        let errors = JobScript::parse(text, None).expect_err(text);
        let found = &errors.0[0];
        assert!(found.to_string().contains(words), "{text}\n{errors}");
        assert_eq!(
            (found.position.line, found.position.column),
            (*line, *column),
            "{text}\n{errors}"
        );
    }
}

/// A stage directive in a script with a striped job, and the mistake in it.
const BAD_STAGES: &[(&str, u32, &str)] = &[
    ("stage_in type=file source=/p/a destination=$DW_JOB_STRIPED/../b", 64, "leaves the instance"),
    ("stage_in type=file source=/p/a destination=$DW_JOB_STRIPED/x/..", 66, "leaves the instance"),
    ("stage_in type=file source=/p/a destination=/p/b", 48, "inside an instance is expected"),
    ("stage_out type=file source=/p/a destination=/p/b", 32, "inside an instance is expected"),
    (
        "stage_in type=file source=$DW_JOB_STRIPED/a destination=$DW_JOB_STRIPED/b",
        31,
        "parallel file system is expected",
    ),
    ("stage_in type=file source=p/a destination=$DW_JOB_STRIPED/b", 31, "neither absolute"),
    ("stage_in type=file source=/p/a/ destination=$DW_JOB_STRIPED/b", 31, "type=directory"),
    ("stage_in type=file source=/p/a destination=$DW_JOB_PRIVATE/b", 48, "private name space"),
    (
        "stage_in type=file source=/p/a destination=$DW_JOB_STRIPED_CACHE/b",
        48,
        "a cache cannot be staged",
    ),
    ("stage_in type=file source=/p/a destination=$HOME/b", 48, "not a variable"),
    ("stage_in type=file source=/p/a destination=${DW_JOB_STRIPED", 49, "without `}`"),
    ("stage_in type=file source=/p/a destination=$DW_PERSISTENT_STRIPED_/b", 71, "not the name"),
    (
        "stage_in type=file source=/p/a destination=$DW_PERSISTENT_STRIPED_x/b",
        1,
        "persistentdw name=x",
    ),
    ("stage_in type=fille source=/p/a destination=$DW_JOB_STRIPED/b", 19, "unknown type"),
    ("stage_in type=log source=/p/a destination=$DW_JOB_STRIPED/b", 30, "stage_out type=log"),
    ("stage_in type=file source=\"/p/a\" destination=$DW_JOB_STRIPED/b", 31, "quotation mark"),
    ("stage_in source=/p/a destination=$DW_JOB_STRIPED/b", 5, "without `type=`"),
    ("persistentdw name=x # of last week", 25, "a comment behind a directive"),
];

#[test]
fn invalid_stages_are_refused() {
    for (directive, column, words) in BAD_STAGES {
        let text =
            format!("#DW jobdw capacity=1GiB type=scratch access_mode=striped\n#DW {directive}\n");
        let errors = JobScript::parse(&text, None).expect_err(directive);
        assert!(errors.to_string().contains(words), "{directive}\n{errors}");
        assert_eq!(errors.0.len(), 1, "{errors}");
        let at = errors.0[0].position;
        assert_eq!((at.line, at.column), (2, *column), "{directive}\n{errors}");
    }
}

#[test]
fn only_striped_scratch_can_be_staged() {
    let stage = "#DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/p/a\n";
    for (head, words) in [
        ("", "without `jobdw`"),
        ("#DW jobdw capacity=1GiB type=scratch access_mode=private\n", "private name space cannot"),
        ("#DW jobdw capacity=1GiB type=cache pfs=/p access_mode=striped\n", "is a cache"),
    ] {
        let errors = JobScript::parse(&format!("{head}{stage}"), None).unwrap_err();
        assert!(errors.to_string().contains(words), "{errors}");
    }
    let twice = format!("#DW jobdw capacity=1GiB type=scratch access_mode=striped\n{stage}{stage}");
    assert!(
        JobScript::parse(&twice, None)
            .unwrap_err()
            .to_string()
            .contains("that of the stage of line")
    );
}

#[test]
fn unknown_symbols_are_refused() {
    for (path, words) in
        [("/p/%z", "`%z` stands for nothing"), ("/p/%a", "job array"), ("/p/x%", "end of a value")]
    {
        let text = format!(
            "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n#DW stage_in type=file source={path} destination=$DW_JOB_STRIPED/b\n"
        );
        let errors = JobScript::parse(&text, Some(&symbols())).unwrap_err();
        assert!(errors.to_string().contains(words), "{errors}");
    }
}

#[test]
fn all_errors_are_reported_in_order() {
    let text = "#DW jobdw capacity=1X type=y access_mode=z\n#DW swop 1\n";
    let errors = JobScript::parse(text, None).unwrap_err();
    let places: Vec<_> = errors.0.iter().map(|e| (e.position.line, e.position.column)).collect();
    assert_eq!(places, [(1, 21), (1, 28), (1, 42), (2, 5)]);
}

#[test]
fn ordinary_comments_are_ignored() {
    let text = "#!/bin/sh\n#DWARF debug information\n#dwelling\n# DW jobdw\n#\n#BBC\n#SBATCH -N1\nexit\n#DWx\n";
    assert!(JobScript::parse(text, None).unwrap().is_empty());
    assert!(JobScript::parse("", None).unwrap().is_empty());
}

#[test]
fn lists_have_one_path_per_line() {
    let list = parse_list("# inputs\n/pfs/a b\n\n$DW_JOB_STRIPED/c\r\n").unwrap();
    assert_eq!(list, [pfs("/pfs/a b"), job("c")]);
    let errors = parse_list("/pfs/a\nb\n").unwrap_err();
    assert_eq!(errors.0[0].position.line, 2);
}

/// No text makes the reader panic, and every error names a place inside the text: 60,000 texts
/// put together from pieces of the language and from noise.
#[test]
fn arbitrary_text_does_not_panic() {
    const PIECES: &[&str] = &[
        "#DW ",
        "#BB ",
        "#DW",
        "#",
        "\n",
        "\\\n",
        "\\",
        " ",
        "\t",
        "\r",
        "jobdw ",
        "persistentdw ",
        "swap ",
        "stage_in ",
        "stage_out ",
        "create_persistent ",
        "destroy_persistent ",
        "hurry",
        "capacity=",
        "type=",
        "access_mode=",
        "pool=",
        "pfs=",
        "name=",
        "source=",
        "destination=",
        "MFS=",
        "striped",
        "private",
        "ldbalance",
        "(",
        ")",
        ",",
        "=",
        "scratch",
        "cache",
        "file",
        "directory",
        "list",
        "1",
        "100",
        "3.5",
        "GiB",
        "TB",
        "N",
        "nodes",
        "18446744073709551615",
        "$DW_JOB_STRIPED",
        "$DW_JOB_PRIVATE",
        "$DW_PERSISTENT_STRIPED_",
        "${",
        "}",
        "$",
        "/",
        "..",
        ".",
        "a",
        "é",
        "\u{0}",
        "\u{1F600}",
        "%",
        "%%",
        "%j",
        "%a",
        "\\\\",
        "\"",
        "\u{feff}",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % below
    };
    let mut accepted = 0;
    for _ in 0..60_000 {
        let mut text = String::new();
        for _ in 0..random(14) {
            text.push_str(PIECES[random(PIECES.len())]);
        }
        let with = random(2) == 0;
        match JobScript::parse(&text, with.then(symbols).as_ref()) {
            Ok(_) => accepted += 1,
            Err(errors) => {
                assert!(!errors.0.is_empty());
                let lines: Vec<&str> = text.split('\n').collect();
                for error in &errors.0 {
                    let line = lines[error.position.line as usize - 1];
                    let columns = line.chars().count() as u32;
                    assert!(
                        (1..=columns + 1).contains(&error.position.column),
                        "{text:?}: {error}"
                    );
                }
            }
        }
        let _ = parse_list(&text);
    }
    assert!(accepted > 1000);
}

/// Two stages, and the words of the message at the second one; none if they can run together.
const DESTINATIONS: &[(&str, &str, &str)] = &[
    (
        "file:/p/a $DW_JOB_STRIPED/i",
        "file:/p/b $DW_JOB_STRIPED//./i",
        "that of the stage of line 2",
    ),
    (
        "directory:/p/a $DW_JOB_STRIPED/i",
        "file:/p/f $DW_JOB_STRIPED/i/f",
        "inside that of the stage of line 2",
    ),
    (
        "file:/p/f $DW_JOB_STRIPED/i/",
        "directory:/p/a $DW_JOB_STRIPED/i",
        "line 2 has its destination inside",
    ),
    (
        "directory:/p/a $DW_JOB_STRIPED",
        "directory:/p/b $DW_JOB_STRIPED/",
        "that of the stage of line 2",
    ),
    (
        "directory:/p/a $DW_JOB_STRIPED/",
        "file:/p/f $DW_JOB_STRIPED/f",
        "inside that of the stage of line 2",
    ),
    (
        "directory:/p/a $DW_JOB_STRIPED/i",
        "list:/p/list $DW_JOB_STRIPED/i",
        "that of the stage of line 2",
    ),
    (
        "file:/p/a $DW_JOB_STRIPED/i",
        "list:/p/list $DW_JOB_STRIPED/i/j",
        "inside that of the stage of line 2",
    ),
    ("directory:/p/a $DW_JOB_STRIPED/i", "directory:/p/b $DW_JOB_STRIPED/j", ""),
    ("directory:/p/a $DW_JOB_STRIPED/i", "directory:/p/b $DW_JOB_STRIPED/in", ""),
    ("directory:/p/a $DW_JOB_STRIPED/i", "file:/p/f $DW_JOB_STRIPED/f", ""),
    ("directory:/p/a $DW_JOB_STRIPED/i", "file:/p/f $DW_PERSISTENT_STRIPED_x/i", ""),
    ("list:/p/list $DW_JOB_STRIPED/", "list:/p/other $DW_JOB_STRIPED/", ""),
    ("list:/p/list $DW_JOB_STRIPED/", "directory:/p/a $DW_JOB_STRIPED/i", ""),
    (
        "file:$DW_JOB_STRIPED/a /p/out",
        "file:$DW_JOB_STRIPED/b /p//./out",
        "that of the stage of line 2",
    ),
    (
        "directory:$DW_JOB_STRIPED/a /p/out",
        "directory:$DW_JOB_STRIPED/b /p/out/b/",
        "inside that of",
    ),
    (
        "directory:$DW_JOB_STRIPED/a /p/out",
        "file:$DW_PERSISTENT_STRIPED_x/b /p/out/b",
        "inside that of",
    ),
    ("directory:$DW_JOB_STRIPED/a /p/out", "file:$DW_JOB_STRIPED/b /p/out/../b", ""),
    ("directory:$DW_JOB_STRIPED/a /p/out/a", "directory:$DW_JOB_STRIPED/b /p/out/b", ""),
    ("directory:$DW_JOB_STRIPED/a /p/run", "log:$DW_JOB_STRIPED/logs /p/run", ""),
    ("directory:/p/a $DW_JOB_STRIPED/i", "directory:$DW_JOB_STRIPED/i /p/a", ""),
];

#[test]
fn stages_with_overlapping_destinations_are_refused() {
    let directive = |stage: &str| {
        let (kind, ends) = stage.split_once(':').unwrap();
        let (source, destination) = ends.split_once(' ').unwrap();
        let name = if source.starts_with('$') { "stage_out" } else { "stage_in" };
        format!("#DW {name} type={kind} source={source} destination={destination}\n")
    };
    for (first, second, words) in DESTINATIONS {
        let text = format!(
            "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n{}{}#DW persistentdw name=x\n",
            directive(first),
            directive(second)
        );
        match JobScript::parse(&text, None) {
            Ok(_) => assert!(words.is_empty(), "{text}"),
            Err(errors) => {
                assert!(!words.is_empty() && errors.to_string().contains(words), "{text}{errors}");
                assert_eq!(errors.0.len(), 1, "{errors}");
                assert_eq!(errors.0[0].position.line, 3, "{errors}");
            }
        }
    }
}
