"""What the stories tell: plots, and the words that fill them (see `stories` for how a template is read).

A beat that begins with an empty template may be left out. `{a}` and `{b}` are characters, one of
whom may be several people; `{c}` and `{d}` are single ones, together `they`; only one thing of a plot is called `it`.
"""

BOYS = "Tom Ben Max Leo Sam Omar Finn Hugo".split()
GIRLS = "Mia Lily Anna Sara Emma Nora Ella Rosa".split()
MEN = ("old farmer", "young king", "tall boy", "poor fisherman", "little boy")
WOMEN = ("old woman", "young queen", "little girl", "rich baker", "kind teacher")
GROUPS = ("brothers", "sisters", "children", "friends", "girls", "boys")
NUMBERS = ("two", "three", "four")
HAD = ("cats", "dogs", "sheep", "brothers", "hats")
BESIDE_MANY = ("with the two dogs", "from the green hills", "with the black shoes", "from the islands")
BESIDE_ONE = ("from the village", "with the black dog", "from the old castle", "with the big bag")
ON_THINGS = ("with the white spots", "with the golden stars", "with the two holes")
THINGS = "kite ball boat hat book drum lamp box bell doll coat basket ring".split()
ANIMALS = "dog cat horse bird rabbit duck goat fox frog mouse owl".split()
FOODS = "pizza cake pie tart pudding".split()
SIZES = "big small little old".split()
COLOURS = "red blue green yellow white black brown".split()

WORDS = {
    "size": SIZES,
    "place": "forest lake river hill village market beach garden park farm castle bridge mountain".split(),
    "home": "house hut cottage farm castle".split(),
    "time": "morning evening day afternoon night".split(),
    "two": NUMBERS,
    "fruits": "apples pears plums nuts berries carrots eggs".split(),
    "good": "good great sweet wonderful".split(),
    "bad": "bad strange bitter awful".split(),
    "glad": "happy glad proud".split(),
    "sad": "sad tired angry lonely".split(),
    "uncle": "uncle aunt father mother grandmother".split(),
    "spot": ("under the bench", "behind the door", "in the tall grass", "in the hollow tree", "under a flat stone"),
    "nook": ("on a roof", "behind the church", "next to the well", "in a deep hole"),
    "soon": ("", "soon ", "at last ", "after an hour, ", "at noon, "),
    "sky": ("blue", "grey", "dark", "clear"),
    "loud": ("loud", "soft", "strange", "funny"),
}

PAST = dict(
    pair.split()
    for pair in (
        "ask asked, bake baked, become became, begin began, blow blew, bring brought, buy bought, "
        "call called, carry carried, cheer cheered, close closed, come came, cry cried, cut cut, "
        "dig dug, do did, eat ate, fall fell, find found, float floated, "
        "follow followed, forget forgot, get got, give gave, go went, grow grew, have had, hear heard, help helped, "
        "hide hid, hold held, jump jumped, keep kept, know knew, laugh laughed, "
        "live lived, look looked, lose lost, love loved, make made, meet met, mix mixed, open opened, paint painted, "
        "plant planted, play played, put put, ring rang, run ran, say said, see saw, "
        "sell sold, shine shone, show showed, sing sang, sit sat, sleep slept, smile smiled, "
        "stand stood, stay stayed, swim swam, take took, taste tasted, tell told, thank thanked, "
        "think thought, try tried, wait waited, wake woke, walk walked, want wanted, wash washed, "
        "win won, work worked"
    ).split(", ")
)

BAKING = (
    (
        "one {time}, {a:first} {a:make} {food:first} for {b:first}.",
        "{b:first} {b:be} hungry, so {a:first} {a:begin} to bake {food:first}.",
        "{a:first} {a:want} to make {food:first} for {b:first}.",
    ),
    (
        "",
        "{a:he} {a:mix} the flour and the milk in a {size} bowl.",
        "{a:he} {a:wash} {a:his} hands and {a:take} a {size} spoon.",
        "the {fruits} on the table {they:be} fresh, and the knife {it:be} sharp.",
    ),
    (
        "",
        "the kitchen {it:be} warm, and {b} {b:sit} at the table.",
        "{b} {b:bring} the sugar and {b:close} the door.",
        "{b:long} {b:wait} near the window.",
    ),
)
BAKED_WELL = (
    *BAKING,
    ("{soon}{food} {food:come} out of the oven and it {food:taste} {good}.",),
    (
        "{b} {b:eat} {two} pieces and {b:thank} {a}.",
        "{b:he} {b:smile} because {food} {food:be} so {good}.",
        "{b:he} {b:eat} it with {b:his} hands and {b:laugh}.",
    ),
    ("", "{a:long} {a:be} {glad}.", "{a} and {b} {they:be} {glad} that {time}."),
)
BAKED_BADLY = (
    *BAKING,
    ("{soon}{food} {food:come} out of the oven, but it {food:taste} {bad}.",),
    (
        "{b} {b:do} not eat it.",
        "{b:he} {b:try} it and {b:make} a strange face.",
        "{b:long} {b:be} too {sad} to eat it.",
    ),
    (
        "",
        "{a:long} {a:be} {sad}.",
        "{a:he} {a:give} it to the birds in the garden.",
        "then {b} {b:help} {a:him}, and {a:he} {a:bake} a new one.",
    ),
)
LOSING = (
    (
        "{a:first} {a:have} {thing:first}.",
        "{a:first} {a:get} {thing:first} from {a:his} {uncle}.",
        "{a:first} {a:love} {thing:first} more than anything.",
    ),
    (
        "one {time}, {a:he} {a:lose} it near the {place}.",
        "{a:he} {a:take} it to the {place} and {a:forget} it there.",
    ),
    (
        "{a:he} {a:look} {spot}, but {thing} {thing:be} not there.",
        "{a:he} {a:ask} everybody at the {place}, but nobody {it:know} where it {thing:be}.",
    ),
    ("", "{a:long} {a:be} {sad} and {a:sit} down.", "{a:he} {a:cry} and {a:go} home without it."),
)
LOST_AND_FOUND = (
    *LOSING,
    ("then {b:first} {b:come} along the road.", "the next day, {a:he} {a:meet} {b:first}."),
    (
        "{b:he} {b:see} {thing} {nook} and {b:give} it to {a:him}.",
        "{b:he} {b:find} it {nook}.",
        "{b:long} {b:have} it, and {b:he} {b:give} it back.",
    ),
    ("", "{a} {a:thank} {b} and {a:be} {glad} again.", "{a:long} {a:keep} {thing} in a {size} box now."),
)
NEVER_FOUND = (
    *LOSING,
    ("", "{b:first} {b:help} {a:him}, but {b:he} {b:do} not find it."),
    (
        "{thing} {thing:be} at the bottom of the river.",
        "{thing:long} {thing:be} too small to see.",
        "a {size} bird {it:have} {thing} now.",
    ),
)
OUTING = (
    (
        "{c:first} and {d:first} {they:go} to the {place}.",
        "one morning, {c:first} {c:walk} to the {place} with {d:first}.",
        "{d:first} {d:take} {c:first} to the {place}.",
    ),
    (
        "the sky over the hills {it:be} {sky}.",
        "the {fruits} in the basket {they:be} {good}.",
        "the basket with the {fruits} {it:be} heavy.",
        "the birds in the tree {they:sing}.",
    ),
    (
        "",
        "{c:he} {c:carry} the food and {d:he} {d:carry} the water.",
        "{d:he} {d:tell} {c:him} a {loud} story.",
        "{c} {c:show} {d:him} the {size} bridge.",
    ),
)
SUNNY = (
    *OUTING,
    (
        "then they {they:swim} in the lake and {they:eat} the {fruits}.",
        "the sun {it:shine}, and they {they:play} all day.",
    ),
    ("", "{d:long} {d:be} tired but {glad}.", "{c:long} {c:fall} asleep in the grass."),
    ("in the evening, they {they:go} home.", "they {they:stay} until the stars over the {place} {they:shine}."),
)
RAINY = (
    *OUTING,
    ("suddenly the clouds over the {place} {they:become} dark.", "then the wind {it:blow} and the rain {it:fall}."),
    (
        "they {they:run} to a {size} {home} and {they:wait} there.",
        "they {they:hide} under a tree because the rain {it:be} cold.",
    ),
    ("", "{c:he} {c:give} {d:him} {c:his} coat.", "the shoes near the fire {they:be} wet."),
    ("", "{d:long} {d:sing} a {loud} song.", "at night, they {they:be} home again."),
)
RESCUE = (
    (
        "one {time}, {a:first} {a:find} {animal:first} near the {place}.",
        "{a:first} {a:hear} {animal:first} behind the {home}.",
    ),
    (
        "it {animal:be} cold and hungry.",
        "it {animal:have} a broken leg.",
        "its {two} babies {they:be} hungry.",
    ),
    (
        "{a:he} {a:carry} it home in {a:his} coat.",
        "{a} {a:give} it some milk and a warm bed.",
        "{a:long} {a:want} to help it.",
    ),
    (
        "",
        "{b:first} {b:bring} some {fruits}, and the animal {it:eat} well.",
        "{b:first} {b:say} that it {animal:be} too weak, but {a} {a:do} not stop.",
    ),
    ("after {two} days, {animal} {animal:be} strong again.", "soon {animal} {animal:run} and {animal:jump} again."),
    (
        "",
        "now it {animal:follow} {a:him} to the {place} every {time}.",
        "at night, it {animal:sleep} next to {a:his} bed.",
        "{a} {a:open} the door, but {animal} {animal:stay}.",
    ),
)
GIFT = (
    (
        "it {it:be} the birthday of {b:first}.",
        "{b:first} {b:be} {sad} that {time}.",
    ),
    (
        "{a:first} {a:buy} {thing:first} at the market.",
        "{a:first} {a:make} {thing:first} with {a:his} own hands.",
    ),
    (
        "",
        "{a:he} {a:hide} it {spot}.",
        "the shops near the {place} {they:be} closed, but one door {it:be} open.",
        "it {thing:be} not new, but it {thing:be} beautiful.",
    ),
    ("{a} {a:give} {thing} to {b}.", "in the evening, {b} {b:find} {thing} on the table."),
    (
        "{b:he} {b:hold} it up and {b:smile}.",
        "{b:long} {b:be} {glad}.",
        "{b:he} {b:thank} {a:him} {two} times.",
    ),
    ("", "now {b} {b:take} it everywhere.", "{thing:long} {thing:be} the best gift of all."),
)
BUILDING = (
    ("{a:first} {a:want} to build a {size} boat.", "{a:first} {a:live} in a {size} {home} near the river."),
    (
        "{a:he} {a:ask} {b:first} for help.",
        "{b:first} {b:know} how to build a boat, and {b:he} {b:help} {a:him}.",
    ),
    (
        "the boards behind the {home} {they:be} long and dry.",
        "{a} {a:cut} the wood, and {b} {b:hold} the boards.",
        "the box with the nails {it:be} heavy.",
    ),
    ("", "{a} and {b} {they:work} all {time}.", "{b:long} {b:paint} the sails."),
    ("at last the boat {it:float} on the water.", "but the boat {it:have} {two} holes, and the water {it:come} in."),
    ("", "{a:long} {a:be} wet and {glad}.", "the fish under the boat {they:swim} away."),
)
CONTEST = (
    (
        "every year, {c:first} and {d:first} {they:run} from the {place} to the bridge.",
        "{c:first} {c:say} that {c:he} {c:run} faster than {d:first}.",
    ),
    (
        "the people at the {place} {they:cheer} for {c} and {d}.",
        "the bell of the church {it:ring}, and they {they:begin}.",
    ),
    (
        "",
        "{d} {d:jump} over the stones.",
        "{c} {c:fall} but {c:stand} up again.",
        "{d:he} {d:look} back and {d:laugh}.",
    ),
)
FIRST_WINS = (
    *CONTEST,
    ("{c:long} {c:win}.", "{c} {c:win}, and the prize {it:be} {thing:first}."),
    ("{d} {d:give} {c:him} {d:his} hand.", "{d:he} {d:be} {sad}, but {d:he} {d:smile}."),
)
SECOND_WINS = (
    *CONTEST,
    ("{d:long} {d:win}.", "{d} {d:win}, and the prize {it:be} {thing:first}."),
    ("{c} {c:give} {d:him} {c:his} hand.", "{c:he} {c:be} {sad}, but {c:he} {c:smile}."),
)
NOISE = (
    ("one night, {a:first} {a:hear} a {loud} noise.", "a {loud} noise {it:wake} {a:first} at night."),
    ("{a:he} {a:hide} under {a:his} bed.", "{a:he} {a:take} a lamp and {a:open} the door."),
    (
        "",
        "the windows of the {home} {they:be} dark.",
        "{a} {a:call} {b:first}, but {b:he} {b:be} asleep.",
        "the trees behind the {home} {they:be} black.",
    ),
    (
        "it {it:be} only {animal:first} with {two} {fruits}.",
        "there {it:be} {animal:first} {spot}.",
    ),
    (
        "{a} {a:laugh} and {a:go} back to bed.",
        "{a:long} {a:be} not afraid now.",
        "{animal} {animal:look} at {a:him} and {animal:run} away.",
    ),
)
MARKET = (
    (
        "{a:first} {a:sell} {fruits} at the market.",
        "on market days, {a:first} {a:stand} behind a table full of {fruits}.",
    ),
    (
        "",
        "the {fruits} in the {size} box {they:be} {good}.",
        "the box of {fruits} {it:be} almost empty.",
        "the women from the village {they:buy} some every {time}.",
    ),
    ("{b:first} {b:come} and {b:ask} for {two}.", "{b:first} {b:want} to buy some, but {b:he} {b:have} no money."),
    (
        "{a:he} {a:give} {b:him} some and {a:smile}.",
        "{a:he} {a:think} about it and {a:say} yes.",
        "{b} {b:sing} a {loud} song for {a:him}.",
    ),
    ("", "{b:long} {b:be} {glad}.", "the next day, {b} {b:bring} {a:him} {thing:first}."),
)
PLANTING = (
    (
        "in spring, {a:first} {a:plant} {two} seeds near the {home}.",
        "{a:first} {a:dig} a hole and {a:put} {two} seeds in it.",
    ),
    (
        "{a:he} {a:bring} water every {time}.",
        "{b:first} {b:laugh} and {b:say} that nothing {it:grow} there.",
    ),
    (
        "",
        "the rain on the leaves {it:be} soft.",
        "the leaves in the rain {they:be} soft.",
        "the days {they:be} long and warm.",
    ),
    ("soon the seeds under the ground {they:wake}.", "in summer, the flowers next to the wall {they:be} tall."),
    (
        "{a:long} {a:be} {glad}.",
        "the smell of the flowers {it:be} {good}.",
        "people from the {place} {they:come} to see the garden.",
    ),
)
ENDING = (
    "",
    "that night, everybody {it:sleep} well.",
    "the people of the village {they:tell} this story.",
    "the moon over the houses {it:be} white.",
    "the lamps in the street {they:be} bright.",
)

PLOTS = tuple(
    (*plot, ENDING)
    for plot in (
        BAKED_WELL,
        BAKED_BADLY,
        LOST_AND_FOUND,
        NEVER_FOUND,
        SUNNY,
        RAINY,
        RESCUE,
        GIFT,
        BUILDING,
        FIRST_WINS,
        SECOND_WINS,
        NOISE,
        MARKET,
        PLANTING,
    )
)
