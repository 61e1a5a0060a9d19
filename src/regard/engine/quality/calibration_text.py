"""A passage of plain English: the default text on which the cost of quantization is measured."""

PASSAGE = """\
The old mill stands at the end of the valley, where the river turns to the south.
In the spring, when the snow melts, the water rises over the stones and the great wheel begins to move.
Anna's grandfather bought the mill more than sixty years ago, and every year he promised to repair the roof.
He never did. There was always something else to be done: the garden, the bees, the boat that needed a new coat of paint.
"A roof is only a hat," he used to say. "You can be happy without one, as long as it does not rain."
Last week, Anna found a letter in the drawer of his desk. It was dated 14 March 1962, and it had never been opened.
The letter came from a bank in the city. It said that a small loan of two hundred pounds had been approved.
She laughed, because he had told that story often, but in his version the bank had refused.
Why would anybody hide good news from himself for half a century? Perhaps he had been afraid of owing something.
Perhaps he had simply forgotten, as one forgets an umbrella on a train.
The next morning she called a carpenter, who looked at the beams for a long time and wrote some numbers on a board.
The work would take three weeks, he said, if the weather was kind; if it was not, nobody could tell.
They began on a Monday. By Friday the first half of the roof was open to the sky, and swallows flew in and out.
Her grandfather sat below them in his chair with a blanket over his knees, looking up and counting the birds.
"You see," he said at last, "it was a very good hat, but I have always liked the stars."
"""
