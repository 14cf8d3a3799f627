//! `#NORNS` directives and mapping files.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_workflow_script::{
    FoundFile, Mapping, NornsScript, PersistAction, Principal, StageDirection, Variables,
};

fn variables() -> Variables {
    Variables { home: "/home/ada".to_owned(), user: "ada".to_owned(), job: "7".to_owned() }
}

fn script_error(text: &str) -> String {
    NornsScript::parse(text).unwrap_err().to_string()
}

fn mapping_error(text: &str) -> String {
    Mapping::parse(text, &variables()).unwrap_err().to_string()
}

/// Files as a listing of the inputs' directories would find them.
fn find(mapping: &Mapping, names: &[String]) -> Vec<FoundFile> {
    let mut found = Vec::new();
    for (input, declared) in mapping.inputs.iter().enumerate() {
        for name in names {
            let Some(matched) = declared.pattern.as_ref().and_then(|p| p.matched(name)) else {
                continue;
            };
            let location = declared.location.join(name);
            found.push(FoundFile { input, matched: matched.to_owned(), location });
        }
    }
    found
}

#[test]
fn directives_of_the_head_are_read_with_their_lines() {
    let text = "#!/bin/sh\n#SBATCH -N 2\n# a comment\n\
                #NORNS stage_in lustre://${HOME}/mesh nvme0://mesh mapping.dat\n\
                #NORNS stage_out $NVME0/out lustre:///scratch/out\n\
                #NORNS persist store nvme0://tables\n\
                #NORNS\tpersist share nvme0://tables group:climate\necho done\n";
    let script = NornsScript::parse(text).unwrap();
    let [mesh, out] = &script.stages[..] else { panic!("{script:?}") };
    assert_eq!((mesh.line, mesh.direction), (4, StageDirection::In));
    assert_eq!(mesh.mapping.as_deref(), Some("mapping.dat"));
    assert_eq!(mesh.origin.expand(&variables()).to_string(), "lustre:///home/ada/mesh");
    assert_eq!((out.line, out.direction), (5, StageDirection::Out));
    assert_eq!(out.origin.to_string(), "nvme0://out");
    assert_eq!(out.destination.to_string(), "lustre:///scratch/out");
    let [store, share] = &script.persists[..] else { panic!("{script:?}") };
    assert_eq!((store.action, &store.principal), (PersistAction::Store, &None));
    assert_eq!(share.principal, Some(Principal::Group("climate".to_owned())));
}

#[test]
fn wrong_directives_are_reported_with_line_column_and_remedy() {
    let text = "#!/bin/sh\n#NORNS stage_inn lustre://a nvme0://b\n\
                #NORNS persist stor nvme0://a\n#NORNS persist share nvme0://a\n\
                #NORNS stage_in lustre://a mesh\n#NORNS stage_in lustre://../a nvme0://b\n\
                #norns stage_in lustre://a nvme0://b\n#NORNS stage_in lustre://$TMP/a nvme0://b\n\
                true\n#NORNS stage_out nvme0://b lustre://a\n";
    let errors: Vec<String> = script_error(text).lines().map(str::to_owned).collect();
    let expected = [
        ("line 2, column 8: `stage_inn` is not a directive", "did you mean `stage_in`?"),
        ("line 3, column 16: `stor` is not an action", "did you mean `store`?"),
        ("line 4, column 22: `persist share` names no user", "append `ada`"),
        ("line 5, column 28: `mesh` names no dataspace", "such as `nvme0://out`"),
        ("line 6, column 17: `lustre://../a` leads out", "without `..`"),
        ("line 7, column 1: a directive that is not read", "`#NORNS` and a blank"),
        ("line 8, column 17: the variable `TMP` is not known", "only HOME"),
        ("line 10, column 1: a directive after the first command", "move it to the head"),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, (problem, remedy)) in errors.iter().zip(expected) {
        assert!(error.starts_with(problem) && error.contains(remedy), "{error}");
    }
}

#[test]
fn files_of_the_published_example_go_to_the_listed_nodes() {
    let text = "### INPUT/OUTPUT FILE MAPPINGS ###\n\
                ['lustre://${HOME}/file/dir/checkpoint%[0-9]+%.out'];\n\
                0;pmdk0://;0,5\n1;pmdk0://;1,6\n2;pmdk0://;2,7\n3;pmdk0://;3,8\n4;pmdk0://;4,9,11\n";
    let mapping = Mapping::parse(text, &variables()).unwrap();
    // Without file 10, so that the number and not the position selects file 11.
    let mut names: Vec<String> = (0..10).map(|n| format!("checkpoint{n}.out")).collect();
    names.extend(["checkpoint11.out", "checkpoint.out", "checkpoint1.out.bak"].map(str::to_owned));
    let found = find(&mapping, &names);
    assert_eq!(found.len(), 11);
    let expected = [vec![0, 5], vec![1, 6], vec![2, 7], vec![3, 8], vec![4, 9, 11]];
    for (rank, numbers) in (0u32..).zip(expected) {
        let files = mapping.files_of(rank, &found).unwrap();
        let names: Vec<String> = files.iter().map(|(file, _)| file.to_string()).collect();
        let expected: Vec<String> = numbers
            .iter()
            .map(|n| format!("lustre:///home/ada/file/dir/checkpoint{n}.out"))
            .collect();
        assert_eq!(names, expected, "rank {rank}");
        assert!(files.iter().all(|(_, target)| target.to_string() == "pmdk0://"));
    }
    assert_eq!(mapping.files_of(5, &found).unwrap(), []);
}

#[test]
fn index_of_an_input_without_number_is_a_position() {
    let text =
        "['lustre://in/%[a-z]+%.dat',\n 'lustre://in/fixed'];\n0;nvme0://x;0\n1;nvme0://;1\n";
    let mapping = Mapping::parse(text, &variables()).unwrap();
    let names = ["beta.dat", "alpha.dat", "gamma.dat"].map(str::to_owned);
    let mut found = find(&mapping, &names);
    let fixed = mapping.inputs[1].location.clone();
    found.push(FoundFile { input: 1, matched: String::new(), location: fixed });
    let names = |rank| -> Vec<String> {
        let files = mapping.files_of(rank, &found).unwrap();
        files.iter().map(|(file, _)| file.path.clone()).collect()
    };
    assert_eq!(names(0), ["in/alpha.dat"]);
    assert_eq!(names(1), ["in/beta.dat", "in/fixed"]);
}

#[test]
fn wrong_mapping_is_reported_with_line_and_remedy() {
    assert!(mapping_error("").contains("the mapping is empty"));
    assert!(
        mapping_error("0;nvme0://;0\n")
            .contains("line 1, column 1: the mapping declares no inputs")
    );
    let list = "['lustre://in/a%[0-9]+%'];\n";
    let row = |row: &str| mapping_error(&format!("{list}{row}\n"));
    assert!(row("0;nvme0://").contains("line 2, column 1: a row has three fields"));
    assert!(
        row("first;nvme0://;0").contains("`first` is no rank of a node; write a number from 0")
    );
    assert!(row("0;nvme0://;0,x").contains("`x` is no index of a file"));
    assert!(row("0;/local;0").contains("`/local` names no dataspace"));
    let list = |list: &str| mapping_error(&format!("{list}\n0;nvme0://;0\n"));
    assert!(
        list("['lustre://in/a%[0-9%'];")
            .contains("is no regular expression: unclosed character class")
    );
    assert!(list("['lustre://in/a%[0-9]+'];").contains("not exactly one expression"));
    assert!(list("['lustre://in/%a/b%'];").contains("contains a slash"));
    assert!(list("[lustre://in/a];").contains("an input is not in quotes"));
    let open = mapping_error("['lustre://in/a',\n");
    assert!(open.contains("line 1, column 1: the list of inputs does not end"), "{open}");
}

#[test]
fn index_without_file_names_the_indices_there_are() {
    let text = "['lustre://in/a%[0-9]+%'];\n0;nvme0://;0,3\n";
    let mapping = Mapping::parse(text, &variables()).unwrap();
    let found = find(&mapping, &["a0", "a7"].map(str::to_owned));
    let error = mapping.files_of(0, &found).unwrap_err();
    assert_eq!(error, "line 2: no input has a file with index 3; the indices are 0, 7");
}
