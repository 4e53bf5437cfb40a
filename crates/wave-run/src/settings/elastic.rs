//! Settings of elastic training, which samples the sizes of each step.

keys! {
    /// Keys of every command whose steps sample from `--depths` and `--widths`.
    #[command(next_help_heading = "Sizes of a step")]
    Elastic => ElasticValues {
        /// Fraction of training, 0 to 1, over which sampled sizes grow from the smallest (curriculum) [default: 0.9; of
        /// finetune 0]
        #[arg(long, value_name = "X")]
        growth: f64, 0.0..=1.0;
        /// Exponent of the growth curve: 1 is linear, more stays small for longer [default: 3]
        #[arg(long, value_name = "P")]
        growth_power: f64 = 3.0, 0.01..=100.0;
    }
}

keys! {
    /// Keys of `wave condense` and `adapt` for shapes sampled beside depth and width.
    #[command(next_help_heading = "Shapes of a step")]
    Variants => VariantsValues {
        /// MLP ratios (hidden channels over width) that some models of a step sample from [default: the auxiliary's]
        #[arg(long, value_name = "X", value_delimiter = ',')]
        mlp_ratios: Vec<f64> = Vec::new(), 0.001..=1000.0;
        /// Head widths that some models of a step sample from, of those that divide their width [default: the auxiliary's]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        head_widths: Vec<usize> = Vec::new(), 1.0..=1e6;
        /// Image sides in pixels that some models of a step sample from; images are resized [default: the auxiliary's]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        image_sizes: Vec<usize> = Vec::new(), 1.0..=100_000.0;
        /// Patch sides in pixels that some models of a step sample from, of those that divide their images [default: the
        /// auxiliary's]
        #[arg(long, value_name = "N", value_delimiter = ',')]
        patches: Vec<usize> = Vec::new(), 1.0..=100_000.0;
        /// Fraction of models, 0 to 1, that sample from these lists; the rest are like the auxiliary [default: 0.5]
        #[arg(long, value_name = "X")]
        variant_share: f64 = 0.5, 0.0..=1.0;
    }
}
