//! Files that are staged in and out, and the job script that asks for them.

use std::path::Path;

use forebay_units::Bytes;

/// A file or directory to stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedItem {
    /// Absolute path on the parallel file system.
    pub pfs: String,
    /// Path in the buffer, relative to its mount.
    pub inside: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

impl StagedItem {
    /// Parses `SOURCE[:DESTINATION]` for a stage-in. The default destination is the last name of
    /// the source.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn parse_in(text: &str) -> Result<StagedItem, String> {
        let (source, inside) = match text.split_once(':') {
            Some((source, inside)) => (source, Some(inside)),
            None => (text, None),
        };
        let pfs = absolute(source)?;
        let found = std::fs::metadata(&pfs).map_err(|error| format!("`{source}`: {error}"))?;
        let last = Path::new(&pfs).file_name().and_then(|name| name.to_str());
        let inside = match (inside, last) {
            (Some(inside), _) => inside,
            (None, Some(last)) => last,
            (None, None) => return Err(format!("`{text}`: write `SOURCE:DESTINATION`")),
        };
        let inside = relative(inside)?;
        Ok(StagedItem { pfs, inside, is_directory: found.is_dir() })
    }

    /// Parses `SOURCE:DESTINATION` for a stage-out, of a file or of a directory.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn parse_out(text: &str, is_directory: bool) -> Result<StagedItem, String> {
        let Some((inside, destination)) = text.split_once(':') else {
            return Err(format!(
                "`{text}`: write `SOURCE:DESTINATION`, a path in the buffer and one outside, such \
                 as `results:/lus/me/results`"
            ));
        };
        let pfs = absolute(destination)?;
        Ok(StagedItem { pfs, inside: relative(inside)?, is_directory })
    }

    /// The directive.
    fn directive(&self, name: &str) -> String {
        let inside = format!("$DW_JOB_STRIPED/{}", self.inside);
        let (source, destination) = match name {
            "stage_in" => (&self.pfs, &inside),
            _ => (&inside, &self.pfs),
        };
        let kind = if self.is_directory { "directory" } else { "file" };
        format!("#DW {name} type={kind} source={source} destination={destination}\n")
    }
}

/// A path of the parallel file system, seen from any host.
fn absolute(path: &str) -> Result<String, String> {
    check_characters(path)?;
    let path = std::path::absolute(path).map_err(|error| format!("`{path}`: {error}"))?;
    let path = path.to_string_lossy().into_owned();
    check_characters(&path)?;
    Ok(path)
}

/// A path in the buffer, without the slash before it that stands for the mount.
fn relative(path: &str) -> Result<String, String> {
    check_characters(path)?;
    let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    let names: Vec<&str> = names.collect();
    match names.contains(&"..") {
        true => Err(format!("`{path}` leaves the buffer with `..`; write a path in the buffer")),
        false => Ok(names.join("/")),
    }
}

/// Directives have no quotation marks.
fn check_characters(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("a path is empty; `.` is the whole buffer".to_owned());
    }
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "\"'\\".contains(c);
    match path.contains(is_wrong) {
        true => Err(format!(
            "`{path}` has blanks, quotation marks or backslashes; stage the \
                             directory that contains it"
        )),
        false => Ok(()),
    }
}

/// The job script that runs its arguments in a buffer of this capacity.
pub fn job_script(
    capacity: Bytes,
    stages_in: &[StagedItem],
    stages_out: &[StagedItem],
    exports: &[(String, String)],
) -> String {
    let mut script = format!(
        "#!/bin/sh\n#DW jobdw type=scratch access_mode=striped capacity={}MiB\n",
        capacity.0 >> 20
    );
    for (name, items) in [("stage_in", stages_in), ("stage_out", stages_out)] {
        script.extend(items.iter().map(|item| item.directive(name)));
    }
    script.push_str("export FOREBAY_MOUNT=\"${DW_JOB_STRIPED%/}\"\n");
    for (name, value) in exports {
        let value = value.replace('\'', r"'\''");
        script.push_str(&format!("export {name}='{value}'\n"));
    }
    script.push_str("exec \"$@\"\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_a_directive_for_each_item_and_runs_its_arguments() {
        let home = tempfile::tempdir().unwrap();
        let input = home.path().join("input");
        std::fs::create_dir(&input).unwrap();
        let input = input.display();
        let stage_in = StagedItem::parse_in(&format!("{input}:/data/./in")).unwrap();
        let default = StagedItem::parse_in(&input.to_string()).unwrap();
        assert_eq!(default.inside, "input");
        let out = StagedItem::parse_out("results:/lus/me/results", true).unwrap();
        let log = StagedItem::parse_out("log:/lus/me/log", false).unwrap();
        let exports = [("FOREBAY_HOSTS".to_owned(), "n1,n2".to_owned())];
        let script = job_script(Bytes(96 << 20), &[stage_in], &[out, log], &exports);
        let expected = format!(
            "#!/bin/sh\n#DW jobdw type=scratch access_mode=striped capacity=96MiB\n\
             #DW stage_in type=directory source={input} destination=$DW_JOB_STRIPED/data/in\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/results destination=/lus/me/results\n\
             #DW stage_out type=file source=$DW_JOB_STRIPED/log destination=/lus/me/log\n\
             export FOREBAY_MOUNT=\"${{DW_JOB_STRIPED%/}}\"\nexport FOREBAY_HOSTS='n1,n2'\n\
             exec \"$@\"\n"
        );
        assert_eq!(script, expected);
    }

    #[test]
    fn wrong_items_are_refused_with_the_reason() {
        let out = |text| StagedItem::parse_out(text, true).unwrap_err();
        assert!(out("results").contains("write `SOURCE:DESTINATION`"));
        assert!(out("../results:/lus").contains("leaves the buffer"));
        assert!(out(":/lus").contains("is empty"));
        assert!(out("a:").contains("is empty"));
        assert!(out("a b:/lus").contains("blanks"));
        assert!(StagedItem::parse_in("/no/such").unwrap_err().contains("No such file"));
    }
}
