//! Wrong requests end with a clear message and exit code 2, without a panic or a partial artefact.

use crate::support::{INIT, Place, RECIPE};

#[test]
fn wrong_flags() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    for i in 0..8 {
        place.write_png(&format!("photos/{}/{i}.png", i % 2));
    }
    place.json("data pack photos trained"); // without test images
    place.refuses(
        "FLAGS",
        "
        frobnicate => frobnicate
         => Usage
        condense missing.toml --out o => missing.toml
        condense r.toml --out r.toml/o => r.toml is a file
        condense r.toml --out r.toml --dry-run => r.toml is a file
        condense r.toml --out /dev/null => /dev/null is no directory
        condense r.toml --resume --dry-run => --resume needs the --out
        run r.toml --data shapes --set data=fashion-mnist => both give data
        run r.toml --data shapes --set condense.data=fashion-mnist => both give data
        run r.toml --set name='\"../r\"' => below runs
        run r.toml --set name=5 => below runs
        run r.toml --set condense.lr=1 --set condense.lr=2 => condense.lr is given twice
        run r.toml --set condense=3 => condense is a table
        run r.toml --set bench=[{}] => bench is of type array
        run r2.toml --out o => r2.toml
        init he --width 32 --data shapes --out o => --depth
        init he --depth 1 --width 32 --data shapes --set init.batch=3 --out o => unknown key batch
        init heru-lg --from t --depth 2 --width 32 --out o => wave expand
        data check missing => missing
        data pack photos r.toml => r.toml is a file
        data pack photos shards --shard-mb 0 => --shard-mb
        inspect m --data shapes => --plots DIR or --html FILE
        inspect m --html m/config.json => config.json exists | .html
        predict m a.png --csv r.toml => r.toml exists | .csv
        inspect t --data shapes --plots p => data does not apply
        ",
    );
    place.refuses(
        "condense r.toml FLAGS --out o",
        "
        --depths many => many
        --threads 0 => --threads
        --device abacus => abacus
        --lr -1 => lr = -1; expected 0 to 100
        --variant-share 0.2 => --variant-share does not apply
        --batch 100000 => batch
        --widths 24 => head width
        --sizes 1x16..2x32 => --minutes
        --ema 1 => ema
        --set condense.stepz=1 => stepz
        --set condense.epochs=1 --steps 2 => --set and a flag both give a duration
        --set condense.epochs=1 --set condense.steps=2 => are two durations
        --set nonsense => nonsense
        --precision f8 => f8
        ",
    );
    place.refuses(
        "finetune m FLAGS --out o",
        "
        --hold-out 0 => hold
        --data shapes --freeze .,_ => nothing to train
        --data shapes --patience 2 --test-epochs 0 => patience
        --data trained --new-head true --batch 4 --keep best => keep = best: there are no test images | --hold-out N
        --data trained --new-head true --batch 4 --patience 2 => patience = 2: there are no test images
        --data shapes --steps 1 --kl-weight 2 => kl_weight applies only with an ancestor
        --data shapes --steps 1 --kl-weight 0 --ancestor m => kl_weight = 0 | --ancestor
        ",
    );
    place.refuses(
        "speed FLAGS",
        "
        --mode backwards => backwards
        --width 100 --heads 3 => 100
        --steps 0 => --steps
        --batch 1000000000 => batch = 1000000000 | --batch
        --batch 1000000000 --mode forward => batch = 1000000000 | --batch
        --classes 0 => --classes
        --precision f8 => f8
        ",
    );
    place.refuses(
        "expand t FLAGS --steps 0 --out o",
        "
        --depth 2 --width 24 => head width 16
        --depth 2 --width 32 --heads 5 => heads
        --depth 2 => --width
        --depth 2 --width 0 => width 0
        --depth 0 --width 16 => depth 0
        --depth 2 --width 16 --fill sand => sand
        --depth 2 --width 16 --head-lr-ratio 2 => --head-lr-ratio does not apply to expand without
        ",
    );
}

#[test]
fn wrong_flags_of_methods() {
    let place = Place::with_model();
    place.refuses(
        "init FLAGS --depth 2 --width 32 --patch 7 --data shapes --out o",
        "
        magic => magic
        he --heads 5 => heads
        he --arch resnet => resnet
        timm --qk 0,0 => --qk does not apply to method timm
        timm --gamma 0.1 => --gamma
        timm --kernel 3 => --kernel
        timm --filter-variance 1,1,1 => --filter-variance
        timm --similarity 0.1 => --similarity
        timm --state 4 => --state
        xavier --rest mimetic --vp 0,0 => --rest does not apply to method xavier
        default --arch convmixer --factored true => --factored does not apply to method default
        mlp-mean --mlp-mean eq2=1e300 => values of blocks.0.mlp.fc1.weight that are not finite
        layerscale --gamma 2 => gamma
        mimetic --qk 0.7 => alpha and beta
        mimetic --mimetic equal --vp 0.4,0.4 => drop it, or give 0,0
        mimetic --rest he => timm, xavier
        timm --position-scale 3 => --position-scale does not apply to learned positions
        mimetic --positions learned --position-scale 3 => --position-scale does not apply
        zero --rest mimetic --qk 0.1,0.1 => --qk does not apply to method zero
        zero --rest mimetic --vp 0.1,0.1 => --vp does not apply to --zero attention
        zero --zero blocks --mlp-mean eq2=0.3 => --mlp-mean does not apply to --zero blocks
        ",
    );
    place.refuses(
        "init FLAGS --depth 2 --width 8 --out o",
        "
        heru-lg --from m => width
        covariance => --arch convmixer or --arch convnext
        covariance --arch convmixer --kernel 4 => odd
        covariance --arch convmixer --filter-variance 1 => three numbers
        filters --arch convmixer --from m => the model of --from is a vision transformer | ConvMixer
        default --arch convmixer --kernel 4 --dilation 2 => odd size
        default --arch convmixer --mlp-mean eq2=1 => has no MLP
        default --arch convmixer --mlp-ratio 2 => --mlp-ratio does not apply to --arch convmixer
        default --arch convmixer --class-token true => --class-token does not apply
        default --arch convnext --class-token true => --class-token does not apply
        default --arch convnext --dilation 2 => --arch convmixer
        default --arch convnext --kernel 4 => odd size
        ",
    );
    place.refuses(
        "init FLAGS --width 32 --out o",
        "
        weight-selection --depth 2 => --from
        weight-selection --from m --depth 9 => depth is 2
        prune --from m --depth 1 => --data
        heru-lg --from m --depth 1 --train-limit 9 => --train-limit does not apply
        heru-lg --from m --depth 1 --data shapes => --data does not apply beside --from
        heru-lg --from m --depth 1 --layers uniform => --layers does not apply to method heru-lg
        auto-lg --from m --depth 2 --blocks 1 => --similarity
        nested --from m --depth 1 --layers last => last
        nested --from m --depth 1 --mlp-mean eq2=1 => --mlp-mean does not apply to method nested
        prune --from m --data shapes --depth 1 --rest mimetic --qk 0.5,0.5 => --qk does not apply to method prune
        pretrained-attention --from m --depth 1 --rest mimetic --qk 0.1,0.1 => --qk does not apply
        ligo --from m --depth 1 => the donor's depth is 2, more than the target's 1
        ligo --from m --depth 2 --rest he => --rest does not apply to method ligo
        prune --from m --data shapes --depth 1 --positions sinusoidal => --positions does not apply
        heru-lg --from m --depth 1 --channels 3 => --channels does not apply beside --from
        timm --depth 1 --classes 1000000000000000000 => classes is 1000000000000000000 | at most
        timm --depth 1 --channels 2000000000000000000 => channels is 2000000000000000000 | at most
        timm --depth 1 --channels 0 => channels is 0
        default --arch convmixer --depth 1000000000000000000 => depth is 1000000000000000000 | at most
        ",
    );
}

#[test]
fn wrong_recipes() {
    let place = Place::new();
    let line = |text: &str| RECIPE.replace("steps = 12\n", text);
    for (recipe, needle) in [
        (line("stepz = 12\n"), "stepz"),
        (line("steps = 12\nepochs = 1\n"), "both"),
        (format!("{RECIPE}["), "recipe"),
        (RECIPE.replace("data = \"shapes\"\n", ""), "data"),
        (RECIPE.replace("patch = 7", "patch = 5"), "patch"),
        (RECIPE.replace("size = 16", "size = 0"), "template_size"),
        (RECIPE.replace("[1, 3]", "[3, 1]"), "depths"),
        (line("template_start = \"he\"\n"), "template_start"),
        (line("steps = 12\nname = \"n\"\n"), "unknown key name"),
    ] {
        place.write("wrong.toml", &recipe);
        place.refused("condense wrong.toml --out o", &[needle]);
    }
    for (recipe, needle) in [
        ("data = \"shapes\"\n", "stage"),
        ("[bench]\nsizes = []\nmethods = {}\n", "[bench]"),
    ] {
        place.write("wrong.toml", recipe);
        place.refused("run wrong.toml --out o", &[needle]);
    }
    // The faults of a later stage are told before the first one runs.
    let expand = "[expand]\ndepth = 2\nwidth = 16\n";
    let triangular = "[finetune]\nlr_schedule = \"triangular\"\nwarmup_epochs = 1\n";
    for (table, needles) in [
        ("[expand]\ndepth = 2\n", ["[expand]", "no size"]),
        (
            &format!("{expand}steps = 1\nepochs = 1\n"),
            ["[expand]", "both"],
        ),
        (
            &format!("{expand}{triangular}"),
            ["[finetune]: --warmup-epochs does not apply", "triangular"],
        ),
    ] {
        place.write("wrong.toml", format!("{RECIPE}\n{table}"));
        place.refused("run wrong.toml --out o", &needles);
    }
    let own = RECIPE.replace("data = \"shapes\"\n", "");
    let own = own.replace("steps = 12\n", "steps = 12\ndata = \"shapes\"\n");
    place.write(
        "wrong.toml",
        format!("{own}\n{expand}[finetune]\nsteps = 1\n"),
    );
    place.refused("run wrong.toml --out o", &["[finetune] has no data"]);
    let ancestor =
        "[ancestor]\nmethod = \"timm\"\n[ancestor.init]\ndepth = 1\nwidth = 8\nkernel = 9\n";
    place.write("wrong.toml", format!("{RECIPE}\n{ancestor}"));
    let why = "--kernel does not apply to --arch vit";
    place.refused("run wrong.toml --dry-run", &[why]);
}

#[test]
fn broken_files() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --out m");
    let good = place.bytes("m/model.safetensors");
    for broken in [&good[..good.len() / 2], b"not a tensor", b""] {
        place.write("m/model.safetensors", broken);
        for args in [
            "inspect m",
            "inspect m/model.safetensors",
            "eval m --data shapes --test-limit 8",
            "finetune m --data shapes --steps 1 --out o",
        ] {
            place.refused(args, &["model.safetensors"]);
        }
    }
    place.write("m/model.safetensors", &good);
    // As many patches of 7 pixels as in the 28 of the weights.
    place.configure("m", |config| config["model_args"]["img_size"] = 30.into());
    let uneven = "patch_size 7 does not divide img_size 30";
    place.refused("eval m --data shapes --test-limit 8", &[uneven]);
    for config in ["", "[]", "{\"architecture\": 3}"] {
        place.write("m/config.json", config);
        place.refused("eval m --data shapes --test-limit 8", &["config.json"]);
    }

    let templates = place.bytes("t/templates.safetensors");
    place.write("t/templates.safetensors", &templates[..templates.len() - 1]);
    let expand = "expand t --depth 2 --width 32 --steps 0 --out o";
    place.refused(expand, &["templates.safetensors"]);
    place.write("t/templates.safetensors", &templates);
    place.configure("t", |config| config["anchors"] = 4.into());
    place.refused(expand, &["bank.3"]);
}

#[test]
fn data_of_another_number_of_classes() {
    let place = Place::with_model();
    place.write_classes("two", ["a", "b"], 4, 4);
    let finetune = "finetune m --data two --steps 1 --batch 2 --out o";
    place.refused(finetune, &["class"]);
    place.refused("eval m --data two", &["class"]);
}
