//! THE table of commands: the enum, default keys, help screen, palette, footer hints, slash commands and the
//! README's list of keys all come from it.

use std::fmt::Write;

/// Where a command's keys count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere but in a box that asks for something.
    Global,
    /// In the input box.
    Input,
    /// Among the messages.
    Messages,
    /// On the sliders.
    Sliders,
    /// In the list of conversations.
    List,
    /// On the candidates of the next token.
    Candidates,
    /// Going through tokens one by one.
    Tokens,
    /// In the tree of the conversation.
    Tree,
    /// On two alternatives side by side.
    Compare,
}

impl Scope {
    /// Every scope, in the order of the help.
    pub const ALL: [Self; 9] = [
        Self::Global,
        Self::Input,
        Self::Messages,
        Self::Tree,
        Self::Compare,
        Self::Sliders,
        Self::List,
        Self::Candidates,
        Self::Tokens,
    ];

    /// The heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Self::Global => "Everywhere",
            Self::Input => "Typing",
            Self::Messages => "Messages",
            Self::Sliders => "Sliders",
            Self::List => "Conversations",
            Self::Candidates => "Microscope",
            Self::Tokens => "Tokens",
            Self::Tree => "Tree",
            Self::Compare => "Comparing",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The command.
    pub command: Command,
    /// Where its keys count.
    pub scope: Scope,
    /// Its slash command, without the slash; empty for none.
    pub slash: &'static str,
    /// Other names of the slash command, accepted and not listed.
    pub aliases: &'static [&'static str],
    /// What stands behind the slash command; empty for nothing.
    pub argument: &'static str,
    /// Its keys, the first one shown.
    pub keys: &'static [&'static str],
    /// One or two words for the footer; empty where it is not shown there.
    pub hint: &'static str,
    /// One sentence.
    pub help: &'static str,
}

macro_rules! commands {
    ($($name:ident $scope:ident $slash:literal $aliases:tt $argument:literal $keys:tt $hint:literal $help:literal;)*) => {
        /// Something the user can ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = $help] $name,)*
        }

        /// Every command.
        pub static COMMANDS: &[Row] = &[
            $(Row {
                command: Command::$name, scope: Scope::$scope, slash: $slash, aliases: &$aliases,
                argument: $argument, keys: &$keys, hint: $hint, help: $help,
            },)*
        ];
    };
}

#[rustfmt::skip]
commands! {
    // command     scope    slash        aliases                        argument      keys                         hint       help
    Stop           Global   ""           []                             ""            ["esc"]                      "stop"     "Stop the answer; it is kept. Elsewhere: one step back.";
    Interrupt      Global   ""           []                             ""            ["ctrl-c"]                   ""         "Stop the answer; twice within two seconds: leave.";
    NewChat        Global   "clear"      ["new"]                        ""            ["ctrl-n"]                   "new"      "Start a new conversation; the old one is kept.";
    Chats          Global   "chats"      ["resume", "list"]             ""            ["ctrl-o"]                   "chats"    "Go to the list of conversations.";
    Search         Global   "search"     ["find"]                       "[WORDS]"     ["ctrl-f"]                   "search"   "Find words in all conversations; Enter opens the place.";
    NextChat       Global   ""           []                             ""            ["ctrl-pgdn"]                ""         "Open the next conversation of the list.";
    PreviousChat   Global   ""           []                             ""            ["ctrl-pgup"]                ""         "Open the previous conversation of the list.";
    Sliders        Global   ""           []                             ""            ["f2"]                       "sliders"  "Go to the sliders, or back.";
    NextArea       Global   ""           []                             ""            ["tab"]                      ""         "Go on to messages, sliders and back to typing.";
    PreviousArea   Global   ""           []                             ""            ["shift-tab"]                ""         "The same the other way round.";
    Palette        Global   ""           []                             ""            ["ctrl-p"]                   "palette"  "Find a command by its words.";
    Help           Global   "help"       ["?"]                          ""            ["f1"]                       "help"     "Show all keys and commands.";
    TogglePanel    Global   "panel"      []                             ""            ["f3"]                       ""         "Show or hide the panel.";
    ToggleList     Global   "sidebar"    []                             ""            ["f4"]                       ""         "Show or hide the list of conversations.";
    Restart        Global   "restart"    []                             ""            ["f5"]                       ""         "Start the engine again.";
    Model          Global   "model"      ["load"]                       "[NAME]"      []                           ""         "Load another model, by name or file; without a name, choose.";
    System         Global   "system"     ["system-prompt"]              "[TEXT]"      ["f6"]                       ""         "Change this conversation's system prompt.";
    Rename         Global   "rename"     ["title"]                      "[TITLE]"     []                           ""         "Give this conversation another title.";
    Delete         Global   "delete"     []                             ""            []                           ""         "Move this conversation to the trash folder.";
    Export         Global   "export"     ["save", "dump"]               "[FILE]"      []                           ""         "Write this conversation into a file: md, html, txt, json or jsonl.";
    Attach         Global   "read"       ["file", "glob", "attach"]     "FILES"       []                           ""         "Put files into the question: a path, a folder, a pattern such as src/**/*.rs.";
    RunCommand     Global   "run"        ["sh"]                         "COMMAND"     []                           ""         "Put what a command of the shell prints into the question.";
    ShowContents   Global   "files"      []                             ""            ["alt-o"]                    ""         "Show the words of the files that the selected message, or the typed question, refers to.";
    Regenerate     Global   "regen"      ["regenerate", "retry"]        ""            ["f7"]                       ""         "Answer the last question again; the old answer stays in the file.";
    Continue       Global   "continue"   []                             ""            []                           ""         "Let the last answer go on.";
    EditLast       Global   "edit"       []                             ""            ["f8"]                       ""         "Take the last question back into the input box.";
    Tree           Global   "tree"       ["branches"]                   ""            ["alt-g"]                    "tree"     "Show this conversation as a tree: every branch, how it was made, what was deleted.";
    UndoEdit       Global   "undo"       ["rewind"]                     ""            ["alt-z"]                    ""         "Undo the last edit of this conversation: question, answer, branch, title, settings; not typing.";
    RedoEdit       Global   "redo"       []                             ""            ["alt-y"]                    ""         "Do it again.";
    CopyPath       Global   "branch"     ["fork"]                       ""            []                           ""         "Copy the conversation as it is shown into a new one.";
    CompareLast    Global   "compare"    ["diff"]                       ""            []                           ""         "Compare the last answer with another try, side by side.";
    CopyAnswer     Global   "copy"       ["c"]                          ""            []                           ""         "Copy the last answer.";
    Set            Global   "set"        ["parameter"]                  "NAME VALUE"  []                           ""         "Set a slider: /set temp 0.7, or /temp 0.7.";
    Show           Global   "show"       ["stats", "context", "status"] ""            []                           ""         "Show the settings and the last answer's figures.";
    Overflow       Global   "overflow"   ["compact", "compress"]        "[HOW]"       []                           ""         "Shorten this conversation now, or set what a full context does: ask, drop, summarise, larger.";
    Cut            Global   "cut"        []                             ""            []                           ""         "Show which messages are no longer sent, and their summary.";
    Uncut          Global   "uncut"      []                             ""            []                           ""         "Send again what the last cut left out.";
    Cache          Global   "cache"      ["kv"]                         ""            []                           ""         "Show who holds which cells of the KV cache; drop or keep them by hand.";
    Microscope     Global   "microscope" []                             ""            ["f9"]                       "microscope" "Show or hide the candidates of the next token.";
    Presets        Global   "preset"     ["presets"]                    "[NAME]"      ["f10"]                      ""         "Take settings that belong together; /preset save NAME keeps your own.";
    Samplers       Global   "samplers"   []                             "[STAGES]"    []                           ""         "Show or change the order of the chain; 'default' restores it.";
    Bias           Global   "bias"       ["logit-bias"]                 "TEXT VALUE"  []                           ""         "Make a token more or less probable, -100 forbids it; 'off' ends it.";
    Grammar        Global   "grammar"    []                             "FILE"        []                           ""         "Answers follow a grammar (GBNF) or JSON schema; 'off' ends it.";
    Unloop         Global   "unloop"     []                             ""            ["f12"]                      ""         "Go on with an answer that repeats itself, with a penalty on repetition.";
    Surprise       Global   "surprise"   ["score"]                      ""            []                           ""         "Show how probable the model finds each token of this conversation.";
    SplitInput     Global   "tokens"     ["tokenize"]                   ""            ["alt-t"]                    ""         "Show how what is being typed is split into tokens.";
    PageUp         Global   ""           []                             ""            ["pgup"]                     ""         "Scroll up.";
    PageDown       Global   ""           []                             ""            ["pgdn"]                     ""         "Scroll down.";
    Top            Global   ""           []                             ""            ["ctrl-home"]                ""         "Go to the beginning of the conversation.";
    Bottom         Global   ""           []                             ""            ["ctrl-end"]                 ""         "Go to its end.";
    Repaint        Global   ""           []                             ""            ["ctrl-l"]                   ""         "Draw the screen anew.";
    Suspend        Global   ""           []                             ""            ["ctrl-z"]                   ""         "Stop the program as a shell does; fg brings it back.";
    Quit           Global   "exit"       ["quit", "bye", "q"]           ""            ["ctrl-q"]                   "quit"     "Leave.";

    Send           Input    ""           []                             ""            ["enter"]                    "send"     "Send the question; while an answer runs it waits its turn.";
    Newline        Input    ""           []                             ""            ["alt-enter", "ctrl-j", "shift-enter"] "newline" "Begin a new line; a backslash before Enter does the same.";
    Leave          Input    ""           []                             ""            ["ctrl-d"]                   ""         "Leave, if nothing is typed.";
    Earlier        Input    ""           []                             ""            ["up"]                       ""         "At the first line: the question before; takes a waiting question back.";
    Later          Input    ""           []                             ""            ["down"]                     ""         "At the last line: the question after.";
    Editor         Input    ""           []                             ""            ["ctrl-g"]                   ""         "Write in your editor ($VISUAL, $EDITOR).";
    Unfold         Input    ""           []                             ""            ["alt-p"]                    ""         "Show a long paste in full.";
    Undo           Input    ""           []                             ""            ["alt-u", "ctrl-_"]          ""         "Undo the last change of the text.";
    Redo           Input    ""           []                             ""            ["alt-r"]                    ""         "Do it again.";

    Up             Messages ""           []                             ""            ["k", "up"]                  ""         "Select the message before.";
    Down           Messages ""           []                             ""            ["j", "down"]                ""         "Select the message after.";
    First          Messages ""           []                             ""            ["g", "home"]                ""         "Select the first message.";
    Last           Messages ""           []                             ""            ["G", "end"]                 ""         "Select the last message.";
    Copy           Messages ""           []                             ""            ["y", "c"]                   "copy"     "Copy the selected message.";
    Again          Messages ""           []                             ""            ["r"]                        "again"    "Answer its question again.";
    Edit           Messages ""           []                             ""            ["e"]                        "edit"     "Take a question back into the input box.";
    OlderTry       Messages ""           []                             ""            ["left", "["]                "tries"    "Show the try before of this message, with what followed it.";
    NewerTry       Messages ""           []                             ""            ["right", "]"]               ""         "Show the try after.";
    Tokens         Messages ""           []                             ""            ["t"]                        "tokens"   "Go through the answer token by token.";
    GoOn           Messages ""           []                             ""            ["b"]                        "branch"   "Go on from here; what followed stays as another branch.";
    CompareTries   Messages ""           []                             ""            ["v"]                        "compare"  "Compare it with another try, side by side.";
    DeleteBranch   Messages ""           []                             ""            ["d", "del"]                 "delete"   "Delete it with all that follows; the tree still has it.";
    CopyBranch     Messages ""           []                             ""            ["n"]                        ""         "Copy the conversation up to here into a new one.";
    Back           Messages ""           []                             ""            ["i", "enter"]               "type"     "Back to typing.";

    TreeUp         Tree     ""           []                             ""            ["up", "k"]                  ""         "The row above.";
    TreeDown       Tree     ""           []                             ""            ["down", "j"]                ""         "The row below.";
    TreePageUp     Tree     ""           []                             ""            ["pgup"]                     ""         "Ten rows up.";
    TreePageDown   Tree     ""           []                             ""            ["pgdn"]                     ""         "Ten rows down.";
    TreeFirst      Tree     ""           []                             ""            ["g", "home"]                ""         "The first row.";
    TreeLast       Tree     ""           []                             ""            ["G", "end"]                 ""         "The last row.";
    TreeBefore     Tree     ""           []                             ""            ["left", "["]                ""         "The try before of this message.";
    TreeAfter      Tree     ""           []                             ""            ["right", "]"]               ""         "The try after.";
    TreeJump       Tree     ""           []                             ""            ["enter"]                    "show"     "Show the path through this message.";
    TreeCompare    Tree     ""           []                             ""            ["v"]                        "compare"  "Compare it with the marked message, or with another try.";
    TreeMark       Tree     ""           []                             ""            ["space", "m"]               "mark"     "Mark it for comparing.";
    TreeDelete     Tree     ""           []                             ""            ["d", "del"]                 "delete"   "Delete it with all that follows.";
    TreeDeleted    Tree     ""           []                             ""            ["x"]                        "deleted"  "Show or hide what was deleted.";
    TreeRestore    Tree     ""           []                             ""            ["u"]                        "undelete" "Bring back what was deleted here.";
    TreeCopy       Tree     ""           []                             ""            ["n"]                        "copy"     "Copy this branch, with all that leads to it and follows, into a new conversation.";

    CompareUp      Compare  ""           []                             ""            ["up", "k"]                  ""         "Scroll up.";
    CompareDown    Compare  ""           []                             ""            ["down", "j"]                ""         "Scroll down.";
    ComparePageUp  Compare  ""           []                             ""            ["pgup"]                     ""         "A page up.";
    ComparePageDown Compare  ""           []                             ""            ["pgdn", "space"]            ""         "A page down.";
    CompareBefore  Compare  ""           []                             ""            ["left", "["]                "tries"    "The try before at the right.";
    CompareAfter   Compare  ""           []                             ""            ["right", "]"]               ""         "The try after at the right.";
    CompareSwap    Compare  ""           []                             ""            ["s"]                        "swap"     "Exchange left and right.";
    CompareTake    Compare  ""           []                             ""            ["enter"]                    "take right" "Go on with the right one.";

    KnobUp         Sliders  ""           []                             ""            ["up", "k"]                  ""         "The slider above.";
    KnobDown       Sliders  ""           []                             ""            ["down", "j"]                ""         "The slider below.";
    Less           Sliders  ""           []                             ""            ["left", "h"]                "less"     "One step less; with Shift a big one.";
    More           Sliders  ""           []                             ""            ["right", "l"]               "more"     "One step more; with Shift a big one.";
    MuchLess       Sliders  ""           []                             ""            ["shift-left", "H"]          ""         "A big step less.";
    MuchMore       Sliders  ""           []                             ""            ["shift-right", "L"]         ""         "A big step more.";
    AllKnobs       Sliders  ""           []                             ""            ["a"]                        "all"      "Show all sliders, or those that matter first.";
    Candidates     Sliders  ""           []                             ""            ["m"]                        ""         "Go to the candidates of the next token.";
    Reset          Sliders  ""           []                             ""            ["del"]                      "reset"    "Back to the default. Typing a number sets the slider, Enter takes it.";

    ListUp         List     ""           []                             ""            ["up", "k"]                  ""         "The conversation above.";
    ListDown       List     ""           []                             ""            ["down", "j"]                ""         "The conversation below.";
    ListPageUp     List     ""           []                             ""            ["pgup"]                     ""         "A page up.";
    ListPageDown   List     ""           []                             ""            ["pgdn"]                     ""         "A page down.";
    Open           List     ""           []                             ""            ["enter"]                    "open"     "Open the conversation.";
    Filter         List     ""           []                             ""            ["/"]                        "find"     "Find conversations by letters of their titles and tags, and by what was said; Esc shows all again.";
    ListRename     List     ""           []                             ""            ["r"]                        "rename"   "Give it another title.";
    Tags           List     "tags"       ["tag"]                        "[TAGS]"      ["t"]                        "tags"     "Give it tags.";
    Pin            List     "pin"        []                             ""            ["p"]                        "pin"      "Let it stand above the others, or no longer.";
    Archive        List     "archive"    []                             ""            ["a"]                        "archive"  "Put it away, or back into the list.";
    ShowArchived   List     ""           []                             ""            ["A"]                        ""         "Show what is archived too, or no longer.";
    ListDelete     List     ""           []                             ""            ["d", "del"]                 "delete"   "Move it to the trash folder.";
    ListRestore    List     ""           []                             ""            ["u"]                        "undelete" "Bring back what was deleted last.";

    CandidateUp    Candidates ""         []                             ""            ["up", "k"]                  ""         "The candidate above.";
    CandidateDown  Candidates ""         []                             ""            ["down", "j"]                ""         "The candidate below.";
    PickCandidate  Candidates ""         []                             ""            ["enter"]                    "take"     "By hand: take this candidate.";
    StepChain      Candidates ""         []                             ""            ["space", "right"]           "step"     "By hand: take what would be drawn.";
    PickText       Candidates ""         []                             ""            ["t"]                        "type"     "By hand: type what comes next.";
    LetRun         Candidates ""         []                             ""            ["r"]                        "run"      "Let the model go on by itself.";

    TokenBefore    Tokens   ""           []                             ""            ["left", "h"]                ""         "The token before.";
    TokenAfter     Tokens   ""           []                             ""            ["right", "l"]               ""         "The token after.";
    TokensBefore   Tokens   ""           []                             ""            ["up", "k"]                  ""         "Ten tokens back.";
    TokensAfter    Tokens   ""           []                             ""            ["down", "j"]                ""         "Ten tokens on.";
    NextSurprise   Tokens   ""           []                             ""            ["n"]                        "surprise" "The next token that surprised the model.";
    LastSurprise   Tokens   ""           []                             ""            ["N", "p"]                   ""         "The surprising token before.";
    Reroll         Tokens   ""           []                             ""            ["1"]                        "reroll"   "Take the first other candidate here and let the model go on; what was stays.";
    RerollSecond   Tokens   ""           []                             ""            ["2"]                        ""         "The same with the second other candidate.";
    LeaveTokens    Tokens   ""           []                             ""            ["enter", "t"]               ""         "Back to the messages.";
}

impl Command {
    /// The command's row.
    pub fn row(self) -> &'static Row {
        // The table lists the commands in the order of the enum: both come from the same macro.
        &COMMANDS[self as usize]
    }

    /// The command of a slash command's name: whole, an alias, or a beginning that only one has.
    ///
    /// # Errors
    /// Gives the names that begin so: none, or several.
    pub fn by_slash(name: &str) -> Result<Self, Vec<&'static str>> {
        let named = |r: &&Row| !r.slash.is_empty();
        if let Some(row) = COMMANDS.iter().filter(named).find(|r| r.slash == name || r.aliases.contains(&name)) {
            return Ok(row.command);
        }
        let hits: Vec<&Row> =
            COMMANDS.iter().filter(named).filter(|r| !name.is_empty() && r.slash.starts_with(name)).collect();
        match hits.as_slice() {
            [one] => Ok(one.command),
            several => Err(several.iter().map(|r| r.slash).collect()),
        }
    }
}

/// The README's list of keys and slash commands.
pub fn markdown_table() -> String {
    let mut out = String::new();
    for scope in Scope::ALL {
        let _ = write!(out, "**{}**\n\n| key | command | what it does |\n|---|---|---|\n", scope.title());
        for row in COMMANDS.iter().filter(|r| r.scope == scope) {
            let keys: Vec<String> = row.keys.iter().map(|k| format!("`{}`", super::keys::shown(k))).collect();
            let slash = match (row.slash, row.argument) {
                ("", _) => String::new(),
                (slash, "") => format!("`/{slash}`"),
                (slash, argument) => format!("`/{slash} {argument}`"),
            };
            let _ = writeln!(out, "| {} | {slash} | {} |", keys.join(" "), row.help);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_enum() {
        for (i, row) in COMMANDS.iter().enumerate() {
            assert_eq!(row.command as usize, i);
        }
    }

    #[test]
    fn no_name_means_two_things() {
        let mut names: Vec<&str> = COMMANDS.iter().flat_map(|r| r.aliases.iter().copied().chain([r.slash])).collect();
        names.retain(|n| !n.is_empty());
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn slash_commands_are_found_by_beginnings_and_aliases() {
        assert_eq!(Command::by_slash("bye"), Ok(Command::Quit));
        assert_eq!(Command::by_slash("rege"), Ok(Command::Regenerate));
        assert_eq!(Command::by_slash("exited"), Err(vec![]));
        assert_eq!(Command::by_slash("re").unwrap_err(), ["restart", "rename", "read", "regen", "redo"]);
    }

    #[test]
    fn the_readme_has_the_table() {
        if let Some(path) = std::env::var_os("KEYS_FILE") {
            std::fs::write(path, markdown_table()).unwrap();
        }
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap_or_default();
        assert!(readme.contains(markdown_table().trim()), "put this into README.md:\n{}", markdown_table());
    }
}
