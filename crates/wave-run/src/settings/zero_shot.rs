//! Names of classes for networks that classify images by texts.

keys! {
    /// Keys of every command that runs a CLIP or SigLIP.
    #[derive(Eq, PartialOrd, Ord)]
    #[command(next_help_heading = "CLIP and SigLIP")]
    ZeroShot => ZeroShotValues {
        /// Class names of a CLIP or SigLIP, embedded by its text tower: a text file, one name a line, in the order of
        /// the data's classes if it has any
        #[arg(long, value_name = "FILE")]
        labels: String;
        /// Prompt, with {} for the class name. May be given several times: their embeddings are averaged
        /// [default: "a photo of a {}."]
        #[arg(long, value_name = "TEXT")]
        prompt: Vec<String>;
    }
}

impl ZeroShot {
    /// True if class names or a prompt are given.
    pub fn is_given(&self) -> bool {
        self.labels.is_some() || self.prompt.is_some()
    }
}
